"""Numbers of function calls, which unlike seconds do not depend on the machine and on what else runs on it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import FrameType


class CallCounter:
    """Counts calls of functions in Python and C, each time that it is entered.

    Attributes:
        counts: number of calls of each time.
    """

    def __init__(self) -> None:
        self.counts: list[int] = []

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.counts[-1] += event in ("call", "c_call")

    def __enter__(self) -> CallCounter:
        self._before = sys.getprofile()
        self.counts.append(0)
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(self._before)

    def fewest(self) -> int:
        """Returns the number of calls of an iteration that does not log."""
        return min(self.counts)


class CountedFirst:
    """Counts the calls of the first times that it is entered, and enters another context from then on.

    Args:
        times: number of times to count.
        other: the context of later times.
    """

    def __init__(self, times: int, other: AbstractContextManager[object]) -> None:
        self.counter, self._times, self._other = CallCounter(), times, other

    def __enter__(self) -> None:
        counts = len(self.counter.counts) < self._times
        self._entered: AbstractContextManager[object] = self.counter if counts else self._other
        self._entered.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._entered.__exit__(None, None, None)
