"""Log lines of packing, where there is no bar."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

_EVERY = 10.0  # seconds between two lines


class Notices:
    """Logs the progress of packing without a terminal, at most every `_EVERY` seconds.

    Args:
        total: number of items in the source.
        begun: number of items that an interrupted run has already packed.
        start: start time.
    """

    def __init__(self, total: int, begun: int, start: float) -> None:
        self.total, self.begun, self.start, self.last = total, begun, start, start

    def update(self, done: int, now: float) -> None:
        """Logs a line if it is due."""
        if now - self.last < _EVERY or done >= self.total:
            return
        self.last = now
        left = (self.total - done) * (now - self.start) / (done - self.begun)
        logger.info("packing: %s of %s, about %.0f s left", f"{done:,}", f"{self.total:,}", left)
