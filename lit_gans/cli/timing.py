"""Short trainings that are timed, for `lit-gans tune`, `plan` and `bench`."""

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

ENDLESS = 10**9  # iterations of a training that the clock ends
_WARMUP = 3  # iterations
_BLOCK = {"cuda": 5, "cpu": 1}  # iterations between two looks at the clock, which wait for a GPU
_FEWEST, _MOST = 3, 40  # blocks
_IDLE = 0.8  # least share of the time that the training thread computes on a machine without other work


@dataclass(frozen=True)
class Timing:
    """What a short training measures.

    Args:
        times: seconds of an iteration, the mean of each block.
        images: real images of all processes in an iteration.
        peak_memory: most bytes in use: of torch's allocations on a GPU, of the process on a CPU; None on a CPU without
            Linux's /proc.
        computing: share of the time in which the training thread had a core, less if other processes took it; None on
            a GPU, for which the thread waits.
    """

    times: list[float]
    images: int
    peak_memory: int | None
    computing: float | None = None

    @property
    def images_per_second(self) -> float:
        """Real images per second, averaged over all blocks."""
        return self.images * len(self.times) / sum(self.times)


def busy_machine(timings: Iterable[Timing]) -> list[str]:
    """Returns a sentence if other processes took time from the slowest of some timings, otherwise nothing."""
    least = min((each.computing for each in timings if each.computing is not None), default=1.0)
    if least >= _IDLE:
        return []
    waiting = f"the training waited {1 - least:.0%} of the time for a core"
    return [f"timed on a busy machine: {waiting}; once other processes have ended, time again"]


def timed(module: AdversarialModule, data: Any, trainer: Trainer, seconds: float) -> Timing:
    """Trains for a moment.

    Args:
        module, data, trainer: what to train, on which datamodule or loader, and how, with `max_steps=ENDLESS`.
        seconds: time to measure after a warm-up; at least some iterations are measured.
    """
    clock = _Clock(seconds)
    trainer.callbacks.append(clock)  # type: ignore[attr-defined]
    device = trainer.strategy.root_device.type
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_bytes(b"5")  # the peak begins anew: proc(5)
    trainer.fit(module, data)
    computing = clock.computing if device == "cpu" else None
    return Timing(clock.times, clock.images * trainer.world_size, _peak(device), computing)


def speed(config: dict[str, Any], threads: int, seconds: float, images: LightningDataModule | None = None) -> Timing:
    """Times a short training on one device, without callbacks, metrics and loggers.

    Args:
        config: resolved configuration.
        threads: number of torch's threads.
        seconds: time to measure.
        images: what to train on; null uses the data of the configuration.
    """
    devices = config["trainer"].get("devices")
    short = {"devices": devices if isinstance(devices, list) and len(devices) == 1 else 1, "num_nodes": 1}
    short |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    short |= {"max_steps": ENDLESS, "max_epochs": -1}
    without = dict.fromkeys(("callbacks", "metrics", "logger", "init_from"))
    with process_state_restored():
        module, data, trainer = build(config | without | {"trainer": config["trainer"] | short})
        torch.set_num_threads(threads)
        return timed(module, images or data, trainer, seconds)


class _Clock(GenerativeCallback):
    """Times blocks of iterations after a warm-up, and ends the training, on all ranks at once.

    Args:
        seconds: time to measure after the warm-up.
        wall: returns the time in seconds.
        cpu: returns the seconds that this thread has computed.

    Attributes:
        times: seconds of an iteration, the mean of each block.
        images: images of this process in the last iteration.
        computing: share of the time in which this thread had a core.
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
        self._done, self._since = -_WARMUP, (0.0, 0.0)
        self._passed = self._worked = 0.0

    @property
    def computing(self) -> float:
        return self._worked / self._passed if self._passed else 1.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        block = _BLOCK.get(pl_module.device.type, 1)
        self.images = len(batch["image"])
        self._done += 1
        if self._done < 0 or self._done % block:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        wall, cpu = self._wall() - self._since[0], self._cpu() - self._since[1]
        if self._done:
            self.times.append(wall / block)
            self._passed, self._worked = self._passed + wall, self._worked + cpu
            enough = len(self.times) >= _FEWEST and sum(self.times) * block >= self.seconds
            trainer.should_stop = bool(trainer.strategy.broadcast(enough or len(self.times) == _MOST))
        self._since = self._wall(), self._cpu()


def _peak(device: str) -> int | None:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8", errors="replace").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)
