"""`lit-gans compare A.json B.json ...`: prints evaluations side by side, with the best value of each score.

Examples:
    lit-gans compare A.json B.json
    lit-gans evaluate checkpoint=RUN output=seeds_of_a/0.json
    lit-gans compare seeds_of_a seeds_of_b seeds_of_c
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from string import ascii_uppercase
from typing import Any

from lit_gans.cli.tables import markdown
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.config.mistakes import exit_with_2
from lit_gans.metrics.protocol import differences, is_biased

_CHECKPOINTS = {"best.ckpt", "last.ckpt"}  # of a run, which are not to be mixed in one table


def main(arguments: list[str]) -> int:
    """Runs the command with its positional arguments, and returns the exit code."""
    return exit_with_2(lambda: _compare(arguments))


def _compare(arguments: list[str]) -> None:
    if any("=" in item and not Path(item).exists() for item in arguments):
        raise RefusedInput("compare takes paths without keys: lit-gans compare A.json B.json.")
    if not 2 <= len(arguments) <= len(ascii_uppercase):
        raise RefusedInput(
            f"compare needs 2 to {len(ascii_uppercase)} files of lit-gans evaluate, or folders of them: A.json B.json,"
            f" and got {len(arguments)}."
        )
    compare(arguments)


def compare(paths: Sequence[str]) -> dict[str, str]:
    """Prints evaluations side by side, with the best value of each score.

    The files must be written by `lit-gans evaluate`. Real images, feature extractors and numbers of samples must be
    equal. The feature extractor must not be part of a generator's loss.

    Args:
        paths: a JSON file or a folder for each column. The files in a folder are repeats, such as seeds: mean and
            standard deviation (divided by n - 1) are printed.

    Returns:
        The column with the best mean, for each score. An empty string if none is best, or if a value is not finite.

    Raises:
        RefusedInput: If the values are not comparable. The message lists all reasons.
    """
    columns = {
        letter: [(file, _read(file)) for file in _files(Path(path))]
        for letter, path in zip(ascii_uppercase, paths, strict=False)
    }
    records = [pair for column in columns.values() for pair in column]
    for path, record in records:
        if is_biased(record["protocol"]):
            raise RefusedInput(
                f"{path} cannot be compared: the feature extractor {record['protocol']['extractor']} was part of the"
                " generator's loss (arXiv 2203.06026): evaluate all with metrics=efficientnet_lite2 or inception."
            )
    (first_path, first), *others = records
    notes: dict[str, None] = {}
    for path, record in others:
        conflicts, noted = differences(first["protocol"], record["protocol"])
        if conflicts:
            raise RefusedInput(f"{first_path} and {path} are not comparable: {'; '.join(conflicts)}.")
        notes |= dict.fromkeys(f"different {line}" for line in noted)
    if {Path(str(record.get("checkpoint"))).name for _, record in records} >= _CHECKPOINTS:
        notes["some values are of best.ckpt, others of last.ckpt: the best one is chosen by a measured score"] = None
    better: dict[str, str] = {}
    rows = [["", *columns, "better" if len(columns) == 2 else "best"]]
    for key, direction in first["directions"].items():  # equal for all evaluations, because their protocols are equal
        values = {letter: [record[key] for _, record in column] for letter, column in columns.items()}
        better[key] = _best({letter: mean(each) for letter, each in values.items()}, direction)
        rows.append([key, *map(_cell, values.values()), better[key]])
    counts = {letter: f" ({len(column)} files)" if len(column) > 1 else "" for letter, column in columns.items()}
    heading = [f"{letter}: {path}{counts[letter]}" for letter, path in zip(columns, paths, strict=True)]
    print("\n".join([*heading, "", *markdown(rows)]))
    print("\n".join(f"note: {line}" for line in notes))
    return better


def _best(means: Mapping[str, float], direction: str | None) -> str:
    """Returns the column with the best mean, or an empty string."""
    if direction is None or not all(map(math.isfinite, means.values())):
        return ""
    choose: Callable[..., float] = min if direction == "min" else max
    columns = [letter for letter, value in means.items() if value == choose(means.values())]
    return columns[0] if len(columns) == 1 else ""


def _cell(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.6g}"
    deviation = stdev(values) if all(map(math.isfinite, values)) else math.nan
    return f"{mean(values):.6g} ± {deviation:.2g}"


def _files(path: Path) -> list[Path]:
    """Returns the JSON files in a folder, or the path of a file.

    Raises:
        RefusedInput: the folder has no JSON file.
    """
    with refusing(f"{path} cannot be read"):
        if not path.is_dir():
            return [path]
        files = sorted(path.glob("*.json"))
    if not files:
        raise RefusedInput(f"{path} has no JSON file: write one for each seed, lit-gans evaluate output={path}/0.json.")
    return files


def _read(path: Path) -> dict[str, Any]:
    with refusing(f"{path} is not an evaluation that lit-gans evaluate checkpoint=RUN output=FILE has written"):
        record: dict[str, Any] = json.loads(path.read_bytes())
        if not {"protocol", "directions"} <= {*record}:
            raise ValueError("the keys protocol and directions are missing")
        return record
