"""Progress of a command on stderr: bars in a terminal, log lines elsewhere; durations in words."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
_SECONDS = 30.0  # between two log lines


def follow(
    stage: str,
    batches: Iterable[Item],
    total: int,
    done: int = 0,
    size: Callable[[Item], int] = len,  # type: ignore[assignment]  # of what has a length
) -> Iterator[Item]:
    """Yields batches and shows the progress of a stage: by a bar in a terminal, elsewhere by a line every 30 seconds.

    Args:
        stage: readable name of the stage.
        batches: batches to yield.
        total: sum of the sizes of all batches, with those done before.
        done: sum of the sizes of batches that were done before.
        size: returns the size of a batch.
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
