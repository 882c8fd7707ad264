"""`lit-gans COMMAND --help`: description of a command, its keys with meanings and defaults, and examples.

Meanings and defaults come from the docstring and the signature of the command's function. Does not import torch.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from lit_gans.cli.commands import commands
from lit_gans.config.docs import REQUIRED, read_function

_LONGEST_NAME = 26  # longest name next to which meanings fit in a terminal
_GROUPS = ("data", "metrics", "model")  # keys that take the name of an option: `data=digits`


def command_help(name: str) -> str:
    """Returns the help of a command other than training: what its file says, or the keys of its function."""
    command = commands()[name]
    if command.text:
        summary = f"{command.summary[0].upper()}{command.summary[1:]}."
        return "\n".join([command.usage, "", summary, "", command.text, *examples(name)])
    found = read_function(f"lit_gans.cli.{name}", name)
    lines = [f"lit-gans {name} key=value ...", "", *wrapped(found.summary)]
    for paragraph in filter(None, found.description.split("\n\n")):
        lines += ["", *wrapped(" ".join(paragraph.split()))]
    lines += ["", "Keys"]
    lines += table((key, _meaning(key, found.meanings.get(key, "")), found.defaults[key]) for key in found.defaults)
    groups = [key for key in _GROUPS if key in found.defaults]
    if groups:
        keys = ", ".join(f"{key}=NAME" for key in groups)
        lines += ["", *wrapped(f"lit-gans train --help lists the names for {keys}; with a name added, its keys.")]
    return "\n".join([*lines, *examples(name)])


def _meaning(name: str, meaning: str) -> str:
    return f"{name}=NAME: {meaning}" if name in _GROUPS else meaning


def examples(name: str) -> list[str]:
    """Returns the examples of a command as lines."""
    return ["", "Examples", *(f"  {line}" for line in commands()[name].examples)]


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Returns keys with their meanings and defaults as lines, wrapped to the width of the terminal."""
    rows = list(rows)
    longest = max((len(name) for name, _, _ in rows), default=0)
    indent = longest + 4 if longest <= _LONGEST_NAME else 6
    lines = []
    for name, meaning, default in rows:
        text = f"{meaning} [{default if default == REQUIRED else f'default: {default}'}]".strip()
        first = f"  {name}".ljust(indent)
        if longest > _LONGEST_NAME:  # each name has a line of its own
            lines.append(first)
            first = " " * indent
        lines += wrapped(text, first, " " * indent)
    return lines


def wrapped(text: str, first: str = "", indent: str = "") -> list[str]:
    """Wraps a text to the width of the terminal."""
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    unbroken = textwrap.TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False)
    return unbroken.wrap(text)
