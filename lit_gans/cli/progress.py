"""Progress of a command on stderr: bars in a terminal or notebook, log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TypeVar

from lit_gans.common.progress import progress_bar

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
        self._clock = clock
        self._bars = progress_bar()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def follow(self, stage: str, batches: Iterable[Batch], total: int) -> Iterator[Batch]:
        """Yields batches and shows the progress of the stage.

        Args:
            stage: readable name of the stage.
            batches: batches, whose lengths are counted.
            total: sum of the lengths of all batches.
        """
        return (self._lines if self._bars.disable else self._bar)(stage, batches, total)

    def _bar(self, stage: str, batches: Iterable[Batch], total: int) -> Iterator[Batch]:
        task = self._bars.add_task(stage, total=total)
        for batch in batches:
            yield batch
            self._bars.advance(task, len(batch))
        self._bars.remove_task(task)

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
