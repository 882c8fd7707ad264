"""Shows the progress of a command on stderr, as bars in a terminal and as log lines elsewhere; formats durations."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
_SECONDS = 30.0  # minimum interval between log lines, in seconds


def follow(
    stage: str,
    batches: Iterable[Item],
    total: int,
    done: int = 0,
    size: Callable[[Item], int] = len,  # type: ignore[assignment]  # the default requires batches that have a length
) -> Iterator[Item]:
    """Yields batches and shows the progress of a stage: a bar in a terminal, or a log line every 30 seconds elsewhere.

    Args:
        stage: readable name of the stage.
        batches: batches to yield.
        total: sum of the sizes of all batches, including `done`.
        done: sum of the sizes of all batches that were processed before.
        size: function that returns the size of a batch.
    """
    terminal, since = sys.stderr.isatty(), time.monotonic()
    if not terminal:
        logger.info("%s: %s", stage, f"{total:,}")
    with tqdm(total=total, initial=done, desc=stage, leave=False, disable=not terminal) as bar:
        for batch in batches:
            yield batch
            done += size(batch)
            bar.update(size(batch))
            if not terminal and time.monotonic() - since >= _SECONDS:
                logger.info("%s: %s of %s", stage, f"{done:,}", f"{total:,}")
                since = time.monotonic()


def in_words(seconds: float) -> str:
    """Formats an estimated duration with low precision, such as `40 s`, `12 min`, `2 h 10 min` or `3 days`."""
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
