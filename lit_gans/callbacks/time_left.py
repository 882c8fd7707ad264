"""How long a training still takes, from its last iterations and its measurements."""

from __future__ import annotations

import time
from collections.abc import Callable

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Timer

from lit_gans.callbacks.evaluation import Measurement
from lit_gans.training.callback import callbacks_of

_ITERATIONS, _SECONDS = 100, 30.0  # of a window: at least so many, and at least so long


class TimeLeft:
    """Estimates the seconds until a training ends.

    Iterations to come take as long as those of one or two windows before, with their grids, checkpoints and all else
    but measurements. These are counted apart, since they are rare and long: as many as are to come, each as long as
    the last one of its callback. The first iteration, which may compile, and the real images, which are measured once,
    do not count.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._begin: tuple[float, int] | None = None  # time and iteration where the window before began
        self._end = (0.0, 0)  # and where it ended; the times are moved by the measurements since then
        self._paused_at = 0.0

    def end_iteration(self, iteration: int) -> None:
        """Notes the end of an iteration."""
        now = (self.clock(), iteration)
        if self._begin is None:
            self._begin = self._end = now
        elif iteration - self._end[1] >= _ITERATIONS and now[0] - self._end[0] >= _SECONDS:
            self._begin, self._end = self._end, now

    def pause(self) -> None:
        """Notes the start of a measurement."""
        self._paused_at = self.clock()

    def go_on(self) -> None:
        """Notes the end of a measurement."""
        seconds = self.clock() - self._paused_at
        self._end = (self._end[0] + seconds, self._end[1])
        if self._begin is not None:
            self._begin = (self._begin[0] + seconds, self._begin[1])

    def seconds(self, trainer: Trainer, total: int | None) -> float | None:
        """Returns the seconds until the end, or None while they are unknown, and in the last iteration.

        Args:
            trainer: trainer of the training.
            total: number of its iterations; None if there is no such limit.
        """
        limits = [each.time_remaining() for each in callbacks_of(trainer, Timer)]  # `max_time`
        known = [limit for limit in limits if limit is not None]
        step = trainer.global_step
        if step == total:
            return None
        if total and self._begin is not None and step > self._begin[1]:
            each = (self.clock() - self._begin[0]) / (step - self._begin[1])
            measuring = sum(m.seconds * m.num_left(total) for m in callbacks_of(trainer, Measurement))
            known.append(each * (total - step) + measuring)
        return min(known, default=None)
