"""Times short training runs for `lit-gans plan` and `bench`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from lit_gans.common.process_state import process_state_restored
from lit_gans.config.build import build
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.module import AdversarialModule

ENDLESS = 10**9  # number of iterations of a run that `_Clock` stops
_WARMUP = 3  # number of iterations that are not timed
_BLOCK = {"cuda": 5, "cpu": 1}  # number of iterations per timing, because every timing synchronizes with the GPU
_MIN_BLOCKS, _MAX_BLOCKS = 3, 40  # minimum and maximum number of timings
_IDLE = 0.8  # minimum share of the time in which the training thread computes on an otherwise idle machine


@dataclass(frozen=True)
class Timing:
    """Measurements of a short training run.

    Args:
        times: mean duration of an iteration in every block of iterations, in seconds.
        images: number of real images per iteration, over all processes.
        peak_memory: peak memory in bytes, allocated by torch on a GPU or used by the process on a CPU; None on a CPU
            without /proc.
        computing: share of the time in which the training thread ran on a core. Other processes lower this share. None
            on a GPU, because the thread waits for the GPU.
    """

    times: list[float]
    images: int
    peak_memory: int | None
    computing: float | None = None

    @property
    def images_per_second(self) -> float:
        """Number of real images per second, averaged over all blocks."""
        return self.images * len(self.times) / sum(self.times)


def busy_machine(timings: Iterable[Timing]) -> list[str]:
    """Returns a list with one sentence if other processes slowed down any timing, and otherwise an empty list."""
    smallest = min((timing.computing for timing in timings if timing.computing is not None), default=1.0)
    if smallest >= _IDLE:
        return []
    waiting = f"the training waited {1 - smallest:.0%} of the time for a core"
    return [f"timed on a busy machine: {waiting}; repeat the timing when other processes have ended"]


def timed(module: AdversarialModule, data: Any, trainer: Trainer, seconds: float) -> Timing:
    """Trains for a short time, and returns the timing.

    Args:
        module: module to train.
        data: datamodule or data loader.
        trainer: trainer with `max_steps=ENDLESS`.
        seconds: duration of the timing after the warm-up, in seconds. Three blocks of iterations are always timed, even
            if they take longer.
    """
    clock = _Clock(seconds)
    trainer.callbacks.append(clock)  # type: ignore[attr-defined]
    device = trainer.strategy.root_device.type
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_bytes(b"5")  # resets the peak memory of the process, see proc(5)
    trainer.fit(module, data)
    computing = clock.computing if device == "cpu" else None
    return Timing(clock.times, clock.images * trainer.world_size, _peak(device), computing)


def speed(config: dict[str, Any], seconds: float, images: LightningDataModule) -> Timing:
    """Times a short training run on one device, without callbacks, metrics and loggers.

    Args:
        config: resolved configuration.
        seconds: duration of the timing in seconds.
        images: datamodule to train on, in place of the data of the configuration.
    """
    devices = config["trainer"].get("devices")
    short = {"devices": devices if isinstance(devices, list) and len(devices) == 1 else 1, "num_nodes": 1}
    short |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    short |= {"max_steps": ENDLESS, "max_epochs": -1}
    without = dict.fromkeys(("callbacks", "metrics", "logger", "init_from"))
    with process_state_restored():
        module, _, trainer = build(config | without | {"trainer": config["trainer"] | short})
        return timed(module, images, trainer, seconds)


class _Clock(GenerativeCallback):
    """Callback that times blocks of iterations after a warm-up, and then stops the training on all ranks.

    Args:
        seconds: duration of the timing after the warm-up, in seconds.
        wall: function that returns the wall-clock time in seconds.
        cpu: function that returns the CPU time of this thread in seconds.

    Attributes:
        times: mean duration of an iteration in every block, in seconds.
        images: number of images of this process in the last iteration.
        computing: share of the time in which this thread ran on a core.
    """

    def __init__(
        self,
        seconds: float,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.seconds = seconds
        self.times: list[float] = []
        self.images = 0
        self._wall, self._cpu = wall, cpu
        self._iterations = -_WARMUP  # number of timed iterations; negative during the warm-up
        self._block_start = 0.0, 0.0  # wall-clock time and CPU time at the start of the current block
        self._wall_time = self._cpu_time = 0.0  # sums over all timed blocks

    @property
    def computing(self) -> float:
        return self._cpu_time / self._wall_time if self._wall_time else 1.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        block = _BLOCK.get(pl_module.device.type, 1)
        self.images = len(batch["image"])
        self._iterations += 1
        if self._iterations < 0 or self._iterations % block:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        wall, cpu = self._wall() - self._block_start[0], self._cpu() - self._block_start[1]
        if self._iterations:
            self.times.append(wall / block)
            self._wall_time, self._cpu_time = self._wall_time + wall, self._cpu_time + cpu
            is_enough = len(self.times) >= _MIN_BLOCKS and sum(self.times) * block >= self.seconds
            trainer.should_stop = bool(trainer.strategy.broadcast(is_enough or len(self.times) == _MAX_BLOCKS))
        self._block_start = self._wall(), self._cpu()


def _peak(device: str) -> int | None:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8", errors="replace").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)
