"""Progress of a command on stderr: bars in a terminal or notebook, log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

logger = logging.getLogger(__name__)

Batch = TypeVar("Batch", bound=Sized)
_SHARE, _SECONDS = 0.1, 2.0  # between two lines of a stage: at least this share of it, and at least so long


class Progress:
    """Shows the progress of a command's stages.

    Without a terminal, each stage logs a line when it begins and another for every tenth of it that takes longer than
    two seconds.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        console = Console(stderr=True)
        self._clock = clock
        self._bars: RichProgress | None = None
        if console.is_terminal or console.is_jupyter:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = RichProgress(*columns, console=console, transient=True)

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def follow(self, stage: str, batches: Iterable[Batch], total: int) -> Iterator[Batch]:
        """Yields batches and shows the progress of the stage.

        Args:
            stage: readable name of the stage.
            batches: batches, whose lengths are counted.
            total: sum of the lengths of all batches.
        """
        if self._bars is None:
            return self._lines(stage, batches, total)
        return self._bar(self._bars, stage, batches, total)

    @staticmethod
    def _bar(bars: RichProgress, stage: str, batches: Iterable[Batch], total: int) -> Iterator[Batch]:
        task = bars.add_task(stage, total=total)
        for batch in batches:
            yield batch
            bars.advance(task, len(batch))
        bars.remove_task(task)

    def _lines(self, stage: str, batches: Iterable[Batch], total: int) -> Iterator[Batch]:
        logger.info("%s: %s", stage, f"{total:,}")
        done = logged = 0
        since = self._clock()
        for batch in batches:
            yield batch
            done += len(batch)
            now = self._clock()
            if done - logged >= _SHARE * total and now - since >= _SECONDS and done < total:
                logger.info("%s: %s of %s", stage, f"{done:,}", f"{total:,}")
                logged, since = done, now
