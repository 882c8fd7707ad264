"""Cells of `lit-gans bench gpu`: the training of one GAN in one mode at one batch size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lit_gans.benchmark.measure import count_flops, now, quiet_trainer, spread
from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.errors import RefusedInput
from lit_gans.training.adversarial import AdversarialModule

_EMA_DECAY = 0.999
_WARMUP = 3  # iterations
_BLOCK = 5  # iterations between two looks at the clock, which wait for the device
_FEWEST_BLOCKS, _MOST_BLOCKS = 3, 40
_ENDLESS = 10**6


@dataclass(frozen=True)
class Mode:
    """How networks compute: precision of Lightning, TF32, memory layout and compilation."""

    precision: Any
    tf32: bool
    channels_last: bool
    compile: bool


MODES = {
    "fp32": Mode("32-true", False, False, False),
    "tf32": Mode("32-true", True, False, False),
    "bf16": Mode("bf16-mixed", True, False, False),
    "fp16": Mode("16-mixed", True, False, False),
    "channels_last": Mode("bf16-mixed", True, True, False),
    "compile": Mode("bf16-mixed", True, True, True),
}


@dataclass(frozen=True)
class Cell:
    """One GAN in one mode at one batch size."""

    gan: str
    mode: str
    batch_size: int

    def __str__(self) -> str:
        return f"{self.gan} {self.mode} {self.batch_size}"


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allows or forbids TF32 in matrix products and convolutions in float32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


class _Clock:
    """Loader that yields batches on the device again and again, and times blocks of iterations until time is up."""

    def __init__(self, batches: list[dict[str, Tensor]], device: torch.device, seconds: float) -> None:
        self.batches, self.device, self.seconds = batches, device, seconds
        self.times: list[float] = []

    def __len__(self) -> int:
        return _ENDLESS

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        started = 0.0
        for iteration in range(_ENDLESS):
            done = iteration - _WARMUP
            if done >= 0 and done % _BLOCK == 0:
                time = now(self.device)
                self.times += [(time - started) / _BLOCK] if done else []
                enough = len(self.times) >= _FEWEST_BLOCKS and sum(self.times) * _BLOCK >= self.seconds
                if enough or len(self.times) == _MOST_BLOCKS:
                    return
                started = now(self.device)
            yield self.batches[iteration % len(self.batches)]


class _One:
    """Loader of one batch."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        yield self.batch


def batches_of(module: AdversarialModule, num: int, device: torch.device, copies: int) -> list[dict[str, Tensor]]:
    """Returns random images on the device for all discriminator steps of `copies` iterations."""
    generator = torch.Generator().manual_seed(0)
    shape = (num * module.n_critic, module.channels, module.image_size, module.image_size)
    drawn = [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(copies)]
    return [{"image": images, "input": images} for images in drawn]


def train(module: AdversarialModule, loader: Any, device: torch.device, precision: Any, folder: str) -> None:
    """Trains on a loader with a logger, an average and no measurements."""
    trainer = quiet_trainer(
        device.type,
        devices=1,
        precision=precision,
        max_epochs=1,
        logger=CSVMetrics(folder),
        callbacks=[EMA(_EMA_DECAY), Throughput()],
        default_root_dir=folder,
        log_every_n_steps=min(10, len(loader)),  # short runs log too
    )
    trainer.fit(module, loader)


def flops_per_image(make: Callable[..., AdversarialModule], device: torch.device, num: int = 4) -> float:
    """Returns the floating-point operations of an iteration for each image of a batch, penalties included."""
    module = make()
    with tempfile.TemporaryDirectory() as folder:
        loader = _One(*batches_of(module, num, device, 1))
        return count_flops(lambda: train(module, loader, device, "32-true", folder)) / num


def measure(
    cell: Cell, make: Callable[..., AdversarialModule], device: torch.device, seconds: float, flops: float, rate: float
) -> dict[str, Any]:
    """Trains the GAN of a cell for some seconds.

    Args:
        cell: what to train.
        make: returns a module of this GAN; takes `channels_last` and `compile`.
        device: device of the training.
        seconds: time of the measurement, after the warm-up.
        flops: operations of an iteration for each image of a batch.
        rate: operations of a matrix product in bf16 per second.

    Raises:
        RefusedInput: the device does not support the mode.
    """
    mode = MODES[cell.mode]
    if mode.precision == "16-mixed" and device.type != "cuda":
        raise RefusedInput(f"mode {cell.mode} needs a CUDA device.")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    begun = now(device)
    with tempfile.TemporaryDirectory() as folder, tf32(mode.tf32):
        module = make(channels_last=mode.channels_last, compile=mode.compile)
        clock = _Clock(batches_of(module, cell.batch_size, device, 2), device, seconds)
        train(module, clock, device, mode.precision, folder)
    step = spread(clock.times)
    return {
        **asdict(cell),
        "seconds": step,
        "images_per_second": cell.batch_size * module.n_critic / step["median"],
        "share_of_matrix_product": flops * cell.batch_size / step["median"] / rate,
        "peak_memory": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "cell_seconds": now(device) - begun,
    }
