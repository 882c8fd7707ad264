"""Runs the cells of a study in interleaved rounds, and stores each one as soon as it has been measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.study.contract import Cell, Result
from benchmarks.study.progress import Progress
from benchmarks.study.store import Store
from benchmarks.turns import turn_order

logger = logging.getLogger(__name__)
SECONDS = "cell_seconds"  # of a repeat: start of the processes and measurement
Measure = Callable[[Cell], tuple[str, Any]]


def run(cells: Sequence[Cell], store: Store, measure: Measure, repeats: int, minutes: float | None) -> list[Result]:
    """Measures the cells until each has its repeats, and returns all results.

    All cells are measured once, then all once more in reversed order, and so on. Once `minutes` have passed, no further
    repeat starts, except that each cell is still measured once.

    Args:
        cells: cells of all parts.
        store: where results are stored; a cell that has its repeats is not measured again.
        measure: measures a cell and returns (kind, content), see `rank.main`.
        repeats: number of repeats of each cell.
        minutes: limit of the time; None for no limit.
    """
    results = {_id(cell): store.read(cell) for cell in cells}
    plan = _plan(results, repeats)
    known = {f"{r.cell.part}: {r.cell.name}": r.median(SECONDS) for r in results.values() if r.repeats}
    with Progress([results[name].cell for name in plan], known, minutes) as progress:
        for name in plan:
            result = results[name]
            if result.reason is None and not (result.repeats and progress.is_over()):
                progress.begin()
                results[name] = _measured(result, measure)
                store.write(results[name])
            progress.end()
    return list(results.values())


def _plan(results: Mapping[str, Result], repeats: int) -> list[str]:
    """Returns the names of the results to be measured, in turns."""
    plan = []
    for index in range(repeats):
        for name in turn_order(results, index + 1):
            result = results[name]
            wanted = 1 if result.cell.once else repeats
            if result.reason is None and result.commit is None and len(result.repeats) <= index < wanted:
                plan.append(name)
    return plan


def _measured(result: Result, measure: Measure) -> Result:
    start = time.perf_counter()
    kind, content = measure(result.cell)
    seconds = time.perf_counter() - start
    if kind == "result":
        return replace(result, repeats=(*result.repeats, {**content, SECONDS: seconds}))
    if kind == "error":
        logger.warning("%s: %s failed:\n%s", result.cell.part, result.cell.name, content)
    return replace(result, reason=content, failed=kind == "error")


def _id(cell: Cell) -> str:
    return f"{cell.part}: {cell.name}"
