"""The commands of `lit-gans`: each is one file of this folder, found by its docstring, without importing it.

The docstring of `NAME.py` begins with "`lit-gans NAME ...`: summary." and ends with examples. The command is the
function `NAME`, whose signature defines its configuration, or `main`, which takes the command-line arguments.
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
    """What the docstring of a command's file says.

    Args:
        usage: the command with its most important arguments.
        summary: what it does, in one line.
        examples: command lines.
    """

    usage: str
    summary: str
    examples: tuple[str, ...]


def find(name: str) -> Command | None:
    """Returns the command of a name, or None if there is none."""
    path = Path(__file__).with_name(f"{name}.py")
    said = ast.get_docstring(ast.parse(path.read_bytes())) if name.isidentifier() and os.path.isfile(path) else None
    if not said or not said.startswith(f"`lit-gans {name}"):
        return None
    usage, _, summary = said.splitlines()[0].partition("`: ")
    examples = said.partition("Examples:\n")[2].splitlines()
    return Command(usage.lstrip("`"), summary.rstrip("."), tuple(line.strip() for line in examples))


def commands() -> dict[str, Command]:
    """Returns all commands by name; training comes first."""
    names = sorted((path.stem for path in Path(__file__).parent.glob("*.py")), key=lambda name: (name != "train", name))
    return {name: found for name in names if (found := find(name))}


def main_of(name: str) -> Callable[[list[str]], int]:
    """Returns the function that takes a command's arguments and returns its exit code."""
    module = importlib.import_module(f"lit_gans.cli.{name}")
    return module.main if hasattr(module, "main") else partial(run, getattr(module, name))


def run(function: Callable[..., Any], arguments: list[str]) -> int:
    """Runs a command with the configuration that its signature defines; returns the exit code.

    Args:
        function: function of the command.
        arguments: command-line arguments.
    """
    from lit_gans.common.quiet import quiet
    from lit_gans.config.build import resolve
    from lit_gans.config.hydra_app import function_config, hydra_command
    from lit_gans.config.signatures import schema, validated

    def job(composed: DictConfig) -> None:
        given = {key: value for key, value in resolve(composed).items() if key in schema(function)}
        function(**validated(function, given))

    quiet()
    return hydra_command(function_config(function), job, arguments)
