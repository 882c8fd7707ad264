"""`lit-gans compare A.json B.json`: shows two evaluations side by side, with the better one of each score.

Both files are written by lit-gans evaluate. Incomparable values (different real images, extractors or numbers of
samples) raise an error with all reasons and exit with code 2.

Examples:
    lit-gans compare A.json B.json
    lit-gans evaluate checkpoint=RUN output=A.json
    lit-gans evaluate checkpoint=OTHER_RUN output=B.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lit_gans.common.errors import RefusedInput
from lit_gans.common.reading import read_bounded
from lit_gans.config.mistakes import refused_is_2
from lit_gans.metrics.protocol import differences

_MOST_BYTES = 2**24  # of the record of an evaluation


def main(arguments: list[str]) -> int:
    """Prints the values of two evaluations and which one is better; returns the exit code."""
    return refused_is_2(lambda: _compare(arguments))


def _compare(arguments: list[str]) -> int:
    if len(arguments) != 2:
        raise RefusedInput(f"compare takes two files of lit-gans evaluate, not {len(arguments)}: A.json B.json.")
    one, other = (_read(Path(argument)) for argument in arguments)
    compare(one, other, *arguments)
    return 0


def compare(
    one: dict[str, Any], other: dict[str, Any], name: str = "A", other_name: str = "B"
) -> dict[str, str | None]:
    """Prints two evaluations and returns the name of the better one for each key, or None if neither is better.

    Args:
        one, other: records of `lit-gans evaluate`.
        name, other_name: names of the records, such as the paths of their files; the table labels them A and B.

    Raises:
        RefusedInput: incomparable values, with all reasons.
    """
    refused, noted = differences(one["protocol"], other["protocol"])
    if refused:
        raise RefusedInput(f"{name} and {other_name} are not comparable: {'; '.join(refused)}.")
    better: dict[str, str | None] = {}
    table = Table("", "A", "B", "better", box=None)
    for key, direction in one["directions"].items():
        a, b = one[key], other[key]  # the protocols guarantee the same scores
        leads = (a < b) == (direction == "min")
        letter = "" if direction is None or a == b else "A" if leads else "B"
        better[key] = {"A": name, "B": other_name, "": None}[letter]
        table.add_row(key, f"{a:.6g}", f"{b:.6g}", letter)
    console = Console(width=max(100, Console().width), highlight=False, soft_wrap=True)
    console.print(f"A: {name}\nB: {other_name}", markup=False)
    console.print(table)
    for line in noted:
        console.print(f"note: different {line}", markup=False)
    return better


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise RefusedInput(f"{path} is a folder: give the JSON file that lit-gans evaluate wrote.")
    if not path.is_file():
        raise RefusedInput(f"{path}: there is no such file; lit-gans evaluate writes it.")
    try:
        record = json.loads(read_bounded(path, _MOST_BYTES))
        if {"protocol", "directions"} <= record.keys():
            return record
    except (ValueError, AttributeError, RecursionError, OSError):
        pass
    raise RefusedInput(
        f"{path} is not an evaluation, values with their protocol: lit-gans evaluate writes it, for example for a run."
    )
