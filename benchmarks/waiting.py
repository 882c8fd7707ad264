"""Measurement of the time that a training step waits for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from benchmarks.measure import now, quiet_trainer, spread
from lit_gans.data.packed.datamodule import Placement
from lit_gans.data.sources.folder import Folder
from lit_gans.models.dcgan import DCGAN


class _Waiting(Callback):
    """Times steps and, between them, fetching of the batch and its copy to the device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.fetches: list[float] = []
        self.steps: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        self._started = now(self.device)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append(now(self.device) - self._started)

    def timed(self, work: Callable, *arguments: Any) -> Any:
        """Calls `work`, adds its time to the last fetch and returns its result."""
        start = now(self.device)
        result = work(*arguments)
        self.fetches[-1] += now(self.device) - start
        return result


class _TimedLoader:
    """Yields the batches of another loader and times their fetches."""

    def __init__(self, loader: Any, waiting: _Waiting) -> None:
        self.loader, self.waiting = loader, waiting

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waiting.fetches.append(time.perf_counter() - start)
            yield batch


class _TimedFolder(Folder):
    """Serves the packed file of another folder and times it."""

    def __init__(self, source: Folder, placement: Placement, waiting: _Waiting) -> None:
        common = {"image_size": source.image_size, "batch_size": source.batch_size, "seed": source.seed}
        super().__init__(str(source.root), cache=str(source.cache), placement=placement, **common)
        self.waiting, self._path = waiting, source.packed_path

    @property
    def packed_path(self) -> Path:
        return self._path

    def train_dataloader(self) -> Any:
        return _TimedLoader(super().train_dataloader(), self.waiting)

    def transfer_batch_to_device(self, *arguments: Any) -> Any:
        return self.waiting.timed(super().transfer_batch_to_device, *arguments)

    def on_after_batch_transfer(self, *arguments: Any) -> Any:
        return self.waiting.timed(super().on_after_batch_transfer, *arguments)


def waiting_share(
    source: Folder,
    placement: Placement,
    device: torch.device,
    steps: int,
    precision: str,
    generator_width: int,
    discriminator_width: int,
) -> dict[str, Any]:
    """Trains DCGAN and returns the time of its steps, of the fetches between them, and the share of the fetches."""
    waiting = _Waiting(device)
    served = _TimedFolder(source, placement, waiting)
    widths = {"generator_width": generator_width, "discriminator_width": discriminator_width}
    module = DCGAN(seed=source.seed, image_size=source.image_size, **widths)
    trainer = quiet_trainer(
        device.type,
        max_steps=steps + 1,
        max_epochs=-1,
        devices=1,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        callbacks=[waiting],
    )
    trainer.fit(module, datamodule=served)
    fetches, seconds = waiting.fetches[1 : steps + 1], waiting.steps[1:]  # the first begins an epoch and a training
    total = sum(fetches) + sum(seconds)
    return {
        "placement": served.placed(device),
        "step_seconds": spread(seconds),
        "fetch_seconds": spread(fetches),
        "share": sum(fetches) / total,
        "images_per_second": source.batch_size * len(seconds) / total,
    }
