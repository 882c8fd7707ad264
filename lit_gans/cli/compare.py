"""`lit-gans compare A.json B.json`: shows two evaluations side by side, with the better one of each score.

Examples:
    lit-gans compare A.json B.json
    lit-gans evaluate checkpoint=RUN output=A.json
    lit-gans evaluate checkpoint=OTHER_RUN output=B.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lit_gans.cli.tables import markdown
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.config.mistakes import refused_is_2
from lit_gans.metrics.protocol import differences, is_biased


def main(arguments: list[str]) -> int:
    """Runs the command, whose arguments have no names; returns the exit code."""
    return refused_is_2(lambda: _compare(arguments))


def _compare(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise RefusedInput(f"compare takes two files of lit-gans evaluate, not {len(arguments)}: A.json B.json.")
    compare(*arguments)


def compare(a: str, b: str) -> dict[str, str]:
    """Shows two evaluations side by side, with the better one of each score.

    Both files are written by `lit-gans evaluate`. Values that are not comparable (different real images, extractors or
    numbers of samples) are refused with all reasons, as are those by a network that a generator was trained against.

    Args:
        a: JSON file of an evaluation.
        b: JSON file of another one.

    Returns:
        `A` or `B` for each score, whichever is better, or an empty text if neither is.

    Raises:
        RefusedInput: incomparable values, with all reasons, or a judge that a generator was trained against.
    """
    one, other = _read(Path(a)), _read(Path(b))
    for path, record in ((a, one), (b, other)):
        if is_biased(record["protocol"]):
            raise RefusedInput(
                f"{path} is no comparison: {record['protocol']['extractor']} judges a generator that was trained"
                " against it (arXiv 2203.06026): evaluate both with metrics=efficientnet_lite2 or inception."
            )
    refused, noted = differences(one["protocol"], other["protocol"])
    if refused:
        raise RefusedInput(f"{a} and {b} are not comparable: {'; '.join(refused)}.")
    better: dict[str, str] = {}
    rows = [["", "A", "B", "better"]]
    for key, direction in one["directions"].items():  # the protocols guarantee the same scores
        leads = (one[key] < other[key]) == (direction == "min")
        better[key] = "" if direction is None or one[key] == other[key] else "A" if leads else "B"
        rows.append([key, f"{one[key]:.6g}", f"{other[key]:.6g}", better[key]])
    print("\n".join([f"A: {a}", f"B: {b}", "", *markdown(rows)]))
    print("\n".join(f"note: different {line}" for line in noted))
    return better


def _read(path: Path) -> dict[str, Any]:
    with refusing(f"{path} is not an evaluation, as lit-gans evaluate checkpoint=RUN output=FILE writes it"):
        record: dict[str, Any] = json.loads(path.read_bytes())
        if not {"protocol", "directions"} <= {*record}:
            raise ValueError("it has no values with their protocol")
        return record
