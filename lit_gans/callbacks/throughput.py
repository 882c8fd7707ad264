"""Training throughput, utilization of the processor and the device, and the time that metrics take to pass a value."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.common.errors import RefusedInput
from lit_gans.training.attached import callbacks_of
from lit_gans.training.callback import GenerativeCallback, directions_of, refuse_unmeasured

_GIB = 2**30
_METRIC = "metric/"


class Throughput(GenerativeCallback):
    """Logs images per second, and how busy processor and device are, without device synchronization.

    `throughput/images_per_second` counts the real images of all discriminator steps and ranks.
    `utilization/processor` is the processor time of this process per second, 1 for one busy core, without that of the
    loader's processes. `utilization/waiting` is the share of the time between two steps, in which the next batch is
    fetched and copied. On CUDA, `utilization/device_memory_gib` is the peak of torch's allocations, and
    `utilization/device` the share of the last moments in which the device computed, where the package nvidia-ml-py is
    installed.

    Evaluation, sample grids and checkpoints run inside `paused` and are excluded. Values are of the last
    `log_every_n_steps` iterations, and logged then.

    Args:
        time_to: values of metrics whose time is reported at the end of the run: `{fid_digits: 50}` are the seconds of
            training until `metric/fid_digits` is at most 50 (at least, where larger is better).

    Attributes:
        reached: seconds of training until each value of `time_to` was first passed, by name.

    Raises:
        RefusedInput: a value is not finite, or nothing measures its metric.
    """

    def __init__(self, time_to: dict[str, float] | None = None) -> None:
        for name, value in (time_to or {}).items():
            if not math.isfinite(value):
                raise RefusedInput(f"time_to.{name}={value} must be finite.")
        self.time_to = {name.removeprefix(_METRIC): float(value) for name, value in (time_to or {}).items()}
        self.reached: dict[str, float] = {}
        self.images_per_second = 0.0
        self._all_images, self._all_seconds, self._earlier_seconds = 0, 0.0, 0.0
        # since values were logged; the times of the clock are moved by what is excluded
        self._start: float | None = None
        self._step_end: float | None = None
        self._images, self._waited, self._processor = 0, 0.0, 0.0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name in self.time_to:  # every callback knows by now what it measures
            refuse_unmeasured(trainer, f"time_to.{name}", _METRIC + name)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step_end = None
        self._restart()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._step_end is not None:
            self._waited += time.perf_counter() - self._step_end

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        image = batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
        self._images += len(image) * trainer.world_size
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector; 0 logs nothing
        if every and trainer.global_step % every == 0:
            seconds = max(self._seconds_since_logged(), 1e-9)
            self.images_per_second = self._images / seconds
            self._all_images, self._all_seconds = self._all_images + self._images, self._all_seconds + seconds
            pl_module.log("throughput/images_per_second", self.images_per_second)
            pl_module.log_dict(self._utilization(seconds, pl_module.device))
            self._restart()
        self._step_end = time.perf_counter()

    def on_measure_end(self, trainer: Trainer) -> None:
        directions = directions_of(trainer)
        for name, wanted in self.time_to.items():
            value = trainer.callback_metrics.get(_METRIC + name)
            if value is not None and name not in self.reached:
                larger_is_better = directions.get(_METRIC + name) == "max"
                if value >= wanted if larger_is_better else value <= wanted:
                    self.reached[name] = self.seconds

    def exclude(self, seconds: float) -> None:
        """Leaves seconds that have just passed out of all values."""
        self._start = None if self._start is None else self._start + seconds
        self._step_end = None if self._step_end is None else self._step_end + seconds

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "reached": self.reached}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier_seconds = state_dict["seconds"]
        self.reached = dict(state_dict["reached"])

    def reached_lines(self) -> list[str]:
        """Returns lines for the report of the run: when each value of `time_to` was passed."""
        when = {name: f"after {seconds:.1f} s of training" for name, seconds in self.reached.items()}
        return [
            f"time to     {name} {value:g}: {when.get(name, 'not reached')}" for name, value in self.time_to.items()
        ]

    def reached_columns(self) -> dict[str, float]:
        """Returns the seconds by column of a sweep's table; NaN if a value was not reached."""
        return {f"s to {name} {value:g}": self.reached.get(name, math.nan) for name, value in self.time_to.items()}

    @property
    def mean_images_per_second(self) -> float:
        """Mean images per second over the full training in this process."""
        return self._all_images / self._all_seconds if self._all_seconds else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of training until now, those before a resume included."""
        return self._earlier_seconds + self._all_seconds + self._seconds_since_logged()

    def _seconds_since_logged(self) -> float:
        return 0.0 if self._start is None else time.perf_counter() - self._start

    def _utilization(self, seconds: float, device: torch.device) -> dict[str, float]:
        found = {
            "utilization/processor": (time.process_time() - self._processor) / seconds,
            "utilization/waiting": self._waited / seconds,
        }
        if device.type == "cuda":
            found["utilization/device_memory_gib"] = torch.cuda.max_memory_allocated(device) / _GIB
            found |= _device_utilization(device)
        return found

    def _restart(self) -> None:
        self._start, self._processor = time.perf_counter(), time.process_time()
        self._images, self._waited = 0, 0.0


def _device_utilization(device: torch.device) -> dict[str, float]:
    """Returns what the driver reports, or nothing if it does not."""
    try:
        return {"utilization/device": torch.cuda.utilization(device) / 100}
    except (ModuleNotFoundError, RuntimeError):  # no nvidia-ml-py; a device without counters
        return {}


@contextmanager
def paused(trainer: Trainer) -> Iterator[None]:
    """Excludes the time spent inside from the throughput."""
    start = time.perf_counter()
    try:
        yield
    finally:
        for callback in callbacks_of(trainer, Throughput):
            callback.exclude(time.perf_counter() - start)
