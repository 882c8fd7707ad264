"""Commands of `lit-gans`. Every file in the folder `commands` defines a command of the same name.

The docstring of `NAME.py` begins with "`lit-gans NAME ...`: summary." and ends with examples. The docstring is read
without importing the file. The command is implemented by `main`, which takes the command-line arguments, or by the
function `NAME`, whose signature defines the configuration.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

_FOLDER = Path(__file__).with_name("commands")


@dataclass(frozen=True)
class Command:
    """Description of a command, parsed from the docstring of its file.

    Args:
        usage: command with its most important arguments.
        summary: description in one line.
        examples: example command lines.
    """

    usage: str
    summary: str
    examples: tuple[str, ...]


def names() -> list[str]:
    """Returns the names of all commands. `train` comes first."""
    return sorted((path.stem for path in _FOLDER.glob("[!_]*.py")), key=lambda name: (name != "train", name))


def file_of(name: str) -> ast.Module:
    """Returns the syntax tree of a command's file without importing the file."""
    return ast.parse((_FOLDER / f"{name}.py").read_bytes())


def described(name: str) -> Command:
    """Returns the description of a command by name."""
    text = ast.get_docstring(file_of(name)) or ""
    usage, _, summary = text.splitlines()[0].partition("`: ")
    examples = text.partition("Examples:\n")[2].splitlines()
    return Command(usage.lstrip("`"), summary.rstrip("."), tuple(line.strip() for line in examples))


def main_of(name: str) -> Callable[[list[str]], int]:
    """Returns the function that takes a command's arguments and returns its exit code."""
    module = importlib.import_module(f"lit_gans.cli.commands.{name}")
    return module.main if hasattr(module, "main") else partial(run, getattr(module, name))


def run(function: Callable[..., Any], arguments: list[str]) -> int:
    """Runs a command with the configuration that its signature defines, and returns the exit code.

    Args:
        function: function that implements the command.
        arguments: command-line arguments.

    Raises:
        RefusedInput: if a required argument is missing.
    """
    from omegaconf import OmegaConf

    from lit_gans.common.errors import RefusedInput
    from lit_gans.common.quiet import quiet
    from lit_gans.config.build import resolve
    from lit_gans.config.hydra_app import function_config, hydra_command
    from lit_gans.config.signatures import schema, validated

    def job(composed: DictConfig) -> None:
        missing = OmegaConf.missing_keys(composed)
        for key in (key for key in schema(function) if key in missing):
            examples = (line for line in described(function.__name__).examples if f" {key}=" in line)
            raise RefusedInput(f"{key} is required, for example: {next(examples)}")
        values = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        function(**validated(function, values))

    quiet()
    return hydra_command(function_config(function), job, arguments)
