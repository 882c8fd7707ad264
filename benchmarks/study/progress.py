"""Progress of the study on stderr: which cell of how many, and how long is left."""

from __future__ import annotations

import logging
import math
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from benchmarks.study.contract import Cell
from lit_gans.common.progress import progress_bar

logger = logging.getLogger(__name__)
_ALL = ""  # group of all parts


class Progress:
    """A bar in a terminal, log lines elsewhere.

    The number of cells and the time left are those of the measurements to come, without the repeats for which no time
    will be left. A cell that has been measured before takes as long as then; any other one the mean of its part so far,
    or of all parts.

    Args:
        cells: all measurements to come, repeats included, in their order.
        known: seconds of cells that were measured before, by name.
        minutes: time after which no cell is repeated; None for no limit.
    """

    def __init__(self, cells: list[Cell], known: dict[str, float], minutes: float | None = None) -> None:
        self._left, self._done = list(cells), 0
        self._known = dict(known)
        self._start = time.monotonic()
        self._limit = math.inf if minutes is None else 60 * minutes
        self._since: float | None = None
        self._bar = progress_bar(BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._task = self._bar.add_task("", total=len(cells))

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def is_over(self) -> bool:
        """Returns whether no time is left for repeats."""
        return time.monotonic() - self._start > self._limit

    def begin(self) -> None:
        """Shows the next cell."""
        self._since = time.monotonic()
        cell = self._left[0]
        num, left = self.remaining()
        if self._bar.disable:
            logger.info("cell %d of %d: %s, %s", self._done + 1, self._done + num, _id(cell), left)
        else:
            self._bar.update(self._task, description=f"{_id(cell)}, {left}", total=self._done + num)

    def end(self) -> None:
        """Records the time since `begin`, if the cell was measured, and goes on to the next one."""
        name = _id(self._left.pop(0))
        if self._since is not None:
            self._known[name] = time.monotonic() - self._since
            self._done += 1
            self._bar.advance(self._task)
        self._since = None

    def remaining(self) -> tuple[int, str]:
        """Returns the number of measurements to come, and the time that they take in words."""
        seen, elapsed, seconds, num = set(self._known), time.monotonic() - self._start, 0.0, 0
        means = self._means()
        for cell in self._left:
            if _id(cell) in seen and elapsed + seconds > self._limit:
                continue
            seen.add(_id(cell))
            num += 1
            seconds += self._known.get(_id(cell), means.get(cell.part, means.get(_ALL, 0.0)))
        if not self._known:
            return num, "time left unknown"
        return num, f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"

    def _means(self) -> dict[str, float]:
        """Returns the mean seconds of a cell by part, and of all of them."""
        found: dict[str, list[float]] = {}
        for name, seconds in self._known.items():
            for group in (name.partition(": ")[0], _ALL):
                found.setdefault(group, []).append(seconds)
        return {group: sum(times) / len(times) for group, times in found.items()}


def _id(cell: Cell) -> str:
    return f"{cell.part}: {cell.name}"
