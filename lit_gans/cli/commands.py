"""Registry of the commands of `lit-gans`. Every command is one file of this folder.

The docstring of `NAME.py` begins with "`lit-gans NAME ...`: summary." and ends with examples. It is read without
importing the file. The command is implemented by `main`, which takes the command-line arguments, or by the function
`NAME`, whose signature defines the configuration.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig


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


def find(name: str) -> Command | None:
    """Returns the description of a command by name, or None if the command does not exist."""
    path = Path(__file__).with_name(f"{name}.py")
    text = ast.get_docstring(ast.parse(path.read_bytes())) if name.isidentifier() and os.path.isfile(path) else None
    if not text or not text.startswith(f"`lit-gans {name}"):
        return None
    usage, _, summary = text.splitlines()[0].partition("`: ")
    examples = text.partition("Examples:\n")[2].splitlines()
    return Command(usage.lstrip("`"), summary.rstrip("."), tuple(line.strip() for line in examples))


def commands() -> dict[str, Command]:
    """Returns the descriptions of all commands by name. `train` comes first."""
    names = sorted((path.stem for path in Path(__file__).parent.glob("*.py")), key=lambda name: (name != "train", name))
    return {name: command for name in names if (command := find(name))}


def main_of(name: str) -> Callable[[list[str]], int]:
    """Returns the function that takes a command's arguments and returns its exit code."""
    module = importlib.import_module(f"lit_gans.cli.{name}")
    return module.main if hasattr(module, "main") else partial(run, getattr(module, name))


def run(function: Callable[..., Any], arguments: list[str]) -> int:
    """Runs a command with the configuration that its signature defines, and returns the exit code.

    Args:
        function: function that implements the command.
        arguments: command-line arguments.
    """
    from lit_gans.common.quiet import quiet
    from lit_gans.config.build import resolve
    from lit_gans.config.hydra_app import function_config, hydra_command
    from lit_gans.config.signatures import schema, validated

    def job(composed: DictConfig) -> None:
        values = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        function(**validated(function, values))

    quiet()
    return hydra_command(function_config(function), job, arguments)
