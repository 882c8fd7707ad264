"""Callback that logs the training throughput, and the utilization of the CPU and the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.training.callback import GenerativeCallback, callbacks_of

_GIB = 2**30


class Throughput(GenerativeCallback):
    """Logs images per second and the utilization of the CPU and the device, without device synchronization.

    The values are logged every `log_every_n_steps` iterations and cover these iterations. Evaluation, sample grids and
    checkpoints run inside `paused` and are excluded. The keys are:

    - `throughput/images_per_second`: number of real images per second, over all discriminator steps and ranks.
    - `throughput/seconds`: training time in seconds, including the time before resuming.
    - `utilization/processor`: CPU time of this process per second, 1 for one busy core. Worker processes of the data
      loader are excluded.
    - `utilization/waiting`: share of the time that is spent between two steps, while the next batch is loaded and
      copied.
    - `utilization/device_memory_gib`: peak memory that torch allocated on a CUDA device, in GiB.
    - `utilization/device`: share of the most recent sampling period in which a CUDA device was busy. Requires the
      package nvidia-ml-py.
    """

    def __init__(self) -> None:
        self.images_per_second = 0.0
        self._all_images, self._all_seconds, self._earlier_seconds = 0, 0.0, 0.0
        # values since the last log; `exclude` adds time to `_start` and `_step_end`, so that this time does not count
        self._start: float | None = None
        self._step_end: float | None = None
        self._images, self._waited, self._processor = 0, 0.0, 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step_end = None
        if trainer.global_step == 0:  # this callback may have been used in a previous run
            self._all_images, self._all_seconds, self._earlier_seconds = 0, 0.0, 0.0
        self._restart()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._step_end is not None:
            self._waited += time.perf_counter() - self._step_end

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        image = batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
        self._images += len(image) * trainer.world_size
        interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector; 0 logs nothing
        if interval and trainer.global_step % interval == 0:
            seconds = max(self._seconds_since_logged(), 1e-9)
            self.images_per_second = self._images / seconds
            self._all_images, self._all_seconds = self._all_images + self._images, self._all_seconds + seconds
            values = {
                "throughput/images_per_second": self.images_per_second,
                "throughput/seconds": self._earlier_seconds + self._all_seconds,
            }
            pl_module.log_dict(values | self._utilization(seconds, pl_module.device))
            self._restart()
        self._step_end = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._all_images += self._images
        self._all_seconds += self._seconds_since_logged()
        self._start, self._images = None, 0

    def exclude(self, seconds: float, processor: float) -> None:
        """Excludes the last `seconds` from all values, and `processor` seconds of CPU time that they took."""
        self._start = None if self._start is None else self._start + seconds
        self._step_end = None if self._step_end is None else self._step_end + seconds
        self._processor += processor

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._all_images, self._all_seconds, self._earlier_seconds = 0, 0.0, state_dict["seconds"]

    @property
    def mean_images_per_second(self) -> float:
        """Mean number of images per second over the whole training run in this process."""
        return self._all_images / self._all_seconds if self._all_seconds else 0.0

    @property
    def seconds(self) -> float:
        """Training time in seconds, including the time before resuming."""
        return self._earlier_seconds + self._all_seconds + self._seconds_since_logged()

    def _seconds_since_logged(self) -> float:
        return 0.0 if self._start is None else time.perf_counter() - self._start

    def _utilization(self, seconds: float, device: torch.device) -> dict[str, float]:
        values = {
            "utilization/processor": (time.process_time() - self._processor) / seconds,
            "utilization/waiting": self._waited / seconds,
        }
        if device.type == "cuda":
            values["utilization/device_memory_gib"] = torch.cuda.max_memory_allocated(device) / _GIB
            values |= _device_utilization(device)
        return values

    def _restart(self) -> None:
        self._start, self._processor = time.perf_counter(), time.process_time()
        self._images, self._waited = 0, 0.0


def _device_utilization(device: torch.device) -> dict[str, float]:
    """Returns the utilization that the driver reports, or an empty dict if the driver reports no utilization."""
    try:
        return {"utilization/device": torch.cuda.utilization(device) / 100}
    except (ModuleNotFoundError, RuntimeError):  # nvidia-ml-py is not installed, or the device has no counters
        return {}


@contextmanager
def paused(trainer: Trainer) -> Iterator[None]:
    """Context manager that excludes the time spent inside it from the throughput."""
    start, processor = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        for callback in callbacks_of(trainer, Throughput):
            callback.exclude(time.perf_counter() - start, time.process_time() - processor)
