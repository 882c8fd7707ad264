"""Training throughput in images per second, measured without device synchronisation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lit_gans.training.attached import callbacks_of


class Throughput(Callback):
    """Logs `throughput/images_per_second`, the real images of all discriminator steps and ranks per second.

    Evaluation, sample grids and checkpoints run inside `paused` and are excluded. The value is logged every
    `log_every_n_steps` iterations, like other values.
    """

    def __init__(self) -> None:
        self.images_per_second = 0.0
        self._all_images, self._all_seconds = 0, 0.0
        self._start = self._excluded = 0.0
        self._images = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restart()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        image = batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
        self._images += len(image) * trainer.world_size
        if trainer.global_step % trainer.log_every_n_steps:  # type: ignore[attr-defined]  # set by a connector
            return
        seconds = max(time.perf_counter() - self._start - self._excluded, 1e-9)
        self.images_per_second = self._images / seconds
        self._all_images, self._all_seconds = self._all_images + self._images, self._all_seconds + seconds
        pl_module.log("throughput/images_per_second", self.images_per_second)
        self._restart()

    @property
    def mean_images_per_second(self) -> float:
        """Mean images per second over the full training in this process."""
        return self._all_images / self._all_seconds if self._all_seconds else 0.0

    def _restart(self) -> None:
        self._start, self._excluded, self._images = time.perf_counter(), 0.0, 0


@contextmanager
def paused(trainer: Trainer) -> Iterator[None]:
    """Excludes the time spent inside from the throughput."""
    start = time.perf_counter()
    try:
        yield
    finally:
        for callback in callbacks_of(trainer, Throughput):
            callback._excluded += time.perf_counter() - start
