"""Progress bar with the iteration, the remaining time, losses, images per second and metrics such as the FID."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.callbacks import Timer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.throughput import Throughput
from lit_gans.common.device import on_cpu
from lit_gans.common.paths import printable, shown
from lit_gans.common.progress import in_words
from lit_gans.training.callback import GenerativeCallback, callbacks_of
from lit_gans.training.module import AdversarialModule

_LINES = 20  # number of evenly spaced lines that a run prints without a terminal
_EARLY_ITERATIONS = (10, 100)  # iterations with an additional line, so that a long run shows its speed early
_MAX_INTERVAL = 300.0  # maximum time between two lines, in seconds
_MIN_WINDOW_ITERATIONS = 100  # minimum number of iterations in a window of `TimeLeft`
_MIN_WINDOW_SECONDS = 30.0  # minimum duration of a window of `TimeLeft`, in seconds


class _TwoLines(Progress):
    """Progress bar that shows numbers on a second line, because a narrow terminal would truncate a single line."""

    numbers = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.numbers, overflow="ellipsis", no_wrap=True)


class IterationProgressBar(GenerativeCallback, LightningProgressBar):
    """Shows the progress of a run in generator iterations, with an estimate of the remaining time.

    In a terminal or notebook, the progress is a bar. Elsewhere, 20 lines per run are printed. Additional lines are
    printed at iterations 10 and 100, and whenever five minutes have passed without a line. See `TimeLeft` for the
    estimate.

    Args:
        refresh_every: number of iterations between two updates of the numbers. Every update copies losses from the
            device.
    """

    def __init__(self, refresh_every: int = 10) -> None:
        super().__init__()
        self.refresh_every = max(1, refresh_every)
        self._enabled = True  # Lightning calls `disable` on all ranks except 0
        self._progress: _TwoLines | None = None
        self._time_left = TimeLeft()
        self._printed_at = 0.0  # time of the last line, from the clock of `TimeLeft`

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._enabled:
            return
        self._console, self._time_left = Console(), TimeLeft()
        self._printed_at = self._time_left.clock()
        total = trainer.estimated_stepping_batches
        self._total = int(total) if total != float("inf") else None
        first, last = trainer.global_step + 1, self._total or "?"
        name, folder = type(pl_module).__name__, shown(trainer.default_root_dir)
        self._print(f"{name}: iterations {first} to {last}, in {folder}", markup=False)
        if not (self._console.is_terminal or self._console.is_jupyter):
            return
        self._progress = _TwoLines(
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=self._total, completed=trainer.global_step, left="")

    def _print(self, line: str, **kwargs: Any) -> None:
        self._console.print(printable(line, self._console.encoding), soft_wrap=True, **kwargs)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not self._enabled:
            return
        step = trainer.global_step
        self._time_left.end_iteration(step)
        if self._progress is not None:
            self._progress.update(self._task, completed=step)
            if step % self.refresh_every == 0 or step == self._total:
                self._progress.update(self._task, left=self._left(trainer))
                self._progress.numbers = self._numbers(trainer)
        elif self._is_due(step):
            self._printed_at = self._time_left.clock()
            parts = [f"iteration {step}/{self._total or '?'}", self._left(trainer), self._numbers(trainer)]
            self._print("  ".join(part for part in parts if part))

    def _is_due(self, step: int) -> bool:
        """Returns whether to print a line after this iteration."""
        is_regular = step in _EARLY_ITERATIONS or step % max(1, (self._total or 100 * _LINES) // _LINES) == 0
        return is_regular or self._time_left.clock() - self._printed_at >= _MAX_INTERVAL

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        self._time_left.pause()
        if self._progress is not None:
            self._progress.numbers = f"measuring {description}"

    def on_measure_end(self, trainer: Trainer) -> None:
        self._time_left.go_on()

    def _left(self, trainer: Trainer) -> str:
        seconds = self._time_left.seconds(trainer, self._total)
        return "" if seconds is None else f"about {in_words(seconds)} left"

    def _numbers(self, trainer: Trainer) -> str:
        module = trainer.lightning_module
        losses = module.losses if isinstance(module, AdversarialModule) else {}
        logged = trainer.callback_metrics | {f"loss/{name}": loss for name, loss in losses.items()}
        values = {name: float(value) for name, value in on_cpu(logged).items()}
        shown = [f"{name.removeprefix('loss/')} {value:.3f}" for name, value in values.items() if "loss/" in name]
        speed = [c.images_per_second for c in callbacks_of(trainer, Throughput) if c.images_per_second]
        shown += [f"{value:.0f} images/s" for value in speed]
        for metrics in callbacks_of(trainer, Measurement):
            if metrics.headline in metrics.values:
                name, value = metrics.headline.removeprefix("metric/"), metrics.values[metrics.headline]
                shown.append(f"{name} {value:.2f} at {metrics.measured_at}")
        return "  ".join(shown)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class TimeLeft:
    """Estimates the remaining time of a training run.

    The estimate uses the mean duration of recent iterations, including sample grids and checkpoints. The mean covers
    the current window and the previous window. A window has at least 100 iterations and lasts at least 30 seconds.

    Measurements are rare and long, and are therefore estimated separately. Their time is the number of remaining
    measurements times the duration of the callback's last measurement. The estimate excludes the first iteration, which
    might include compilation, and the measurement of the real images, which runs only once.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # time and iteration at the start and at the end of the previous window; measurements shift the times
        self._begin: tuple[float, int] | None = None
        self._end = (0.0, 0)
        self._paused_at = 0.0

    def end_iteration(self, iteration: int) -> None:
        """Records the end of an iteration."""
        now = (self.clock(), iteration)
        if self._begin is None:
            self._begin = self._end = now
        elif iteration - self._end[1] >= _MIN_WINDOW_ITERATIONS and now[0] - self._end[0] >= _MIN_WINDOW_SECONDS:
            self._begin, self._end = self._end, now

    def pause(self) -> None:
        """Records the start of a measurement."""
        self._paused_at = self.clock()

    def go_on(self) -> None:
        """Records the end of a measurement, and excludes its duration from the windows."""
        seconds = self.clock() - self._paused_at
        self._end = (self._end[0] + seconds, self._end[1])
        if self._begin is not None:
            self._begin = (self._begin[0] + seconds, self._begin[1])

    def seconds(self, trainer: Trainer, total: int | None) -> float | None:
        """Returns the remaining time in seconds, or None if this time is unknown or the last iteration has ended.

        Args:
            trainer: trainer of the run.
            total: total number of iterations; None if this number is not limited.
        """
        limits = [timer.time_remaining() for timer in callbacks_of(trainer, Timer)]  # from `max_time`
        estimates = [limit for limit in limits if limit is not None]
        step = trainer.global_step
        if step == total:
            return None
        if total and self._begin is not None and step > self._begin[1]:
            per_iteration = (self.clock() - self._begin[0]) / (step - self._begin[1])
            measuring = sum(m.seconds * m.num_left(total) for m in callbacks_of(trainer, Measurement))
            estimates.append(per_iteration * (total - step) + measuring)
        return min(estimates, default=None)
