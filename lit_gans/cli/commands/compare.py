"""`lit-gans compare A.json B.json`: prints two evaluations side by side, with the better value of each score.

Examples:
    lit-gans compare A.json B.json
    lit-gans evaluate checkpoint=RUN output=A.json
    lit-gans evaluate checkpoint=OTHER_RUN output=B.json
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lit_gans.cli.tables import markdown
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.config.mistakes import exit_with_2
from lit_gans.metrics.protocol import differences, is_biased


def main(arguments: list[str]) -> int:
    """Runs the command with two positional arguments, and returns the exit code."""
    return exit_with_2(lambda: _compare(arguments))


def _compare(arguments: list[str]) -> None:
    if any(item.startswith(("a=", "b=")) and not Path(item).exists() for item in arguments):
        raise RefusedInput("compare takes two paths without keys: lit-gans compare A.json B.json.")
    if len(arguments) != 2:
        raise RefusedInput(f"compare needs two files of lit-gans evaluate, A.json B.json, and got {len(arguments)}.")
    compare(*arguments)


def compare(a: str, b: str) -> dict[str, str]:
    """Prints two evaluations side by side, with the better value of each score.

    Both files must be written by `lit-gans evaluate`. Their values must be comparable: the real images, the feature
    extractors and the numbers of samples must be equal. The feature extractor must not be part of a generator's loss.

    Args:
        a: JSON file of the first evaluation.
        b: JSON file of the second evaluation.

    Returns:
        `A` or `B` for each score, whichever is better. An empty string if neither is better, or if a value is not
        finite.

    Raises:
        RefusedInput: If the values are not comparable. The message lists all reasons.
    """
    first, second = _read(Path(a)), _read(Path(b))
    for path, record in ((a, first), (b, second)):
        if is_biased(record["protocol"]):
            raise RefusedInput(
                f"{path} cannot be compared: the feature extractor {record['protocol']['extractor']} was part of the"
                " generator's loss (arXiv 2203.06026): evaluate both with metrics=efficientnet_lite2 or inception."
            )
    conflicts, noted = differences(first["protocol"], second["protocol"])
    if conflicts:
        raise RefusedInput(f"{a} and {b} are not comparable: {'; '.join(conflicts)}.")
    better: dict[str, str] = {}
    rows = [["", "A", "B", "better"]]
    for key, direction in first["directions"].items():  # equal for both evaluations, because their protocols are equal
        is_ordered = direction is not None and first[key] != second[key] and math.isfinite(first[key] + second[key])
        a_is_better = (first[key] < second[key]) == (direction == "min")
        better[key] = ("A" if a_is_better else "B") if is_ordered else ""
        rows.append([key, f"{first[key]:.6g}", f"{second[key]:.6g}", better[key]])
    print("\n".join([f"A: {a}", f"B: {b}", "", *markdown(rows)]))
    print("\n".join(f"note: different {line}" for line in noted))
    return better


def _read(path: Path) -> dict[str, Any]:
    with refusing(f"{path} is not an evaluation that lit-gans evaluate checkpoint=RUN output=FILE has written"):
        record: dict[str, Any] = json.loads(path.read_bytes())
        if not {"protocol", "directions"} <= {*record}:
            raise ValueError("the keys protocol and directions are missing")
        return record
