"""Progress of a command on stderr: bars in a terminal or notebook, log lines elsewhere; durations in words."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

logger = logging.getLogger(__name__)

Batch = TypeVar("Batch")
_SHARE, _SECONDS = 0.1, 2.0  # between two lines of a stage: at least this share of it, and at least so long


class Progress:
    """Shows the progress of a command's stages.

    Without a terminal, each stage logs a line when it begins and another for every tenth of it that takes longer than
    two seconds.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        without = not (console.is_terminal or console.is_jupyter)
        self._bars = Bars(*columns, console=console, transient=True, disable=without)

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def follow(
        self,
        stage: str,
        batches: Iterable[Batch],
        total: int,
        done: int = 0,
        size: Callable[[Batch], int] = len,  # type: ignore[assignment]  # of what has a length
    ) -> Iterator[Batch]:
        """Yields batches and shows the progress of the stage.

        Args:
            stage: readable name of the stage.
            batches: batches to yield.
            total: sum of the sizes of all batches, with those done before.
            done: sum of the sizes of batches that were done before.
            size: returns the size of a batch.
        """
        task = self._bars.add_task(stage, total=total, completed=done)
        if self._bars.disable:
            logger.info("%s: %s", stage, f"{total:,}")
        logged, since = done, self._clock()
        for batch in batches:
            yield batch
            done += size(batch)
            self._bars.update(task, completed=done)
            now = self._clock()
            if self._bars.disable and done - logged >= _SHARE * total and now - since >= _SECONDS and done < total:
                logger.info("%s: %s of %s", stage, f"{done:,}", f"{total:,}")
                logged, since = done, now
        self._bars.remove_task(task)


def in_words(seconds: float) -> str:
    """Returns a duration that is only about known: `40 s`, `12 min`, `2 h 10 min` or `3 days`."""
    if seconds < 95:
        return f"{max(1, round(seconds / 10)) * 10} s"
    minutes = round(seconds / 60)
    if minutes < 95:
        return f"{minutes} min"
    hours, rest = divmod(round(minutes / 10) * 10, 60)
    if hours < 24:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 60 else f"{round(hours / 24)} days"
