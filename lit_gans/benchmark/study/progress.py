"""Progress of the study on stderr: which cell of how many, and how long is left."""

from __future__ import annotations

import logging
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from lit_gans.benchmark.study.contract import Cell
from lit_gans.common.progress import progress_bar

logger = logging.getLogger(__name__)


class Progress:
    """A bar in a terminal, log lines elsewhere.

    The time left is that of the cells to come: a cell that has been measured before takes as long as then, any other
    one the mean so far.

    Args:
        cells: all measurements to come, repeats included, in their order.
        known: seconds of cells that were measured before, by name.
    """

    def __init__(self, cells: list[Cell], known: dict[str, float]) -> None:
        self._left, self._total = list(cells), len(cells)
        self._known = dict(known)
        self._since: float | None = None
        self._bar = progress_bar(BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._task = self._bar.add_task("", total=self._total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self) -> None:
        """Shows the next cell."""
        self._since = time.monotonic()
        cell = self._left[0]
        text = f"{_id(cell)}, {self.remaining()}"
        if self._bar.disable:
            logger.info("cell %d of %d: %s", self._total - len(self._left) + 1, self._total, text)
        else:
            self._bar.update(self._task, description=text)

    def end(self) -> None:
        """Records the time since `begin`, if the cell was measured, and goes on to the next one."""
        name = _id(self._left.pop(0))
        if self._since is not None:
            self._known[name] = time.monotonic() - self._since
        self._since = None
        self._bar.advance(self._task)

    def remaining(self) -> str:
        """Returns the time left in words."""
        if not self._known:
            return "time left unknown"
        mean = sum(self._known.values()) / len(self._known)
        seconds = sum(self._known.get(_id(cell), mean) for cell in self._left)
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def _id(cell: Cell) -> str:
    return f"{cell.part}: {cell.name}"
