"""Times short training runs for `lit-gans plan` and `bench`."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from lit_gans.common._compat.torch import delay_device
from lit_gans.common.errors import is_out_of_memory
from lit_gans.common.operations import OperationCounter
from lit_gans.common.process_state import process_state_restored
from lit_gans.config.build import build
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.module import AdversarialModule

ENDLESS = 10**9  # number of iterations of a run that `_Clock` stops
_WARMUP = 3  # number of iterations that are not timed
_BLOCK = {"cuda": 5, "cpu": 1}  # number of iterations per timing, because every timing synchronizes with the GPU
_MIN_BLOCKS, _MAX_BLOCKS = 3, 40  # minimum and maximum number of timings
_PROBES = 3  # number of iterations in which the time of the host is measured, and in which the time of the GPU is
_IDLE = 0.8  # minimum share of the time in which the training thread computes on an otherwise idle machine

T = TypeVar("T")


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
        operations: number of operations of torch in an iteration, see `OperationCounter`. None if not counted.
        host: time in which the host launches the work of an iteration, in seconds. None on a CPU.
        device: time in which a GPU computes an iteration whose work is launched in advance, in seconds. None on a CPU.
    """

    times: list[float]
    images: int
    peak_memory: int | None
    computing: float | None = None
    operations: int | None = None
    host: float | None = None
    device: float | None = None

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


def unless_out_of_memory(work: Callable[[], T]) -> T | None:
    """Returns the result of `work`, or None if `work` runs out of memory. Then all memory of `work` is released."""
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # not in the `except` clause, in which the traceback still refers to the tensors of the failed run
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def free_memory(device: torch.device) -> int | None:
    """Returns the memory of a GPU that this process can allocate in total, in bytes; None on a CPU."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)


def timed(
    module: AdversarialModule,
    data: Any,
    trainer: Trainer,
    seconds: float,
    counts: bool = False,
    splits: bool = False,
) -> Timing:
    """Trains for a short time, and returns the timing.

    Args:
        module: module to train.
        data: datamodule or data loader.
        trainer: trainer with `max_steps=ENDLESS`.
        seconds: duration of the timing after the warm-up, in seconds. Three blocks of iterations are always timed, even
            if they take longer.
        counts: whether to count operations in an additional iteration.
        splits: whether to measure the times of the host and of the GPU in additional iterations. Has no effect on a
            CPU.
    """
    device = trainer.strategy.root_device.type
    host = HostTime(CUDAQueue())
    gpu = DeviceTime(host)
    counter = _Counter()
    probes: list[IterationProbe] = [host, gpu] * _PROBES if splits and device == "cuda" else []
    clock = _Clock(seconds, probes=[*probes, counter] if counts else probes)
    trainer.callbacks.append(clock)  # type: ignore[attr-defined]
    if device == "cuda":
        gc.collect()  # the previous training can still be in memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_bytes(b"5")  # resets the peak memory of the process, see proc(5)
    trainer.fit(module, data)
    computing = clock.computing if device == "cpu" else None
    images, operations = clock.images * trainer.world_size, counter.operations.total() or None
    return Timing(clock.times, images, _peak(device), computing, operations, _median(host.times), _median(gpu.times))


def speed(config: dict[str, Any], seconds: float, images: LightningDataModule) -> Timing:
    """Times a short training run on one device, without callbacks, metrics and loggers.

    Args:
        config: resolved configuration.
        seconds: duration of the timing in seconds.
        images: datamodule to train on, in place of the data of the configuration.
    """
    devices = config["trainer"].get("devices")
    short = {"devices": devices if isinstance(devices, list) and len(devices) == 1 else 1, "num_nodes": 1}
    short |= dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
    short |= {"max_steps": ENDLESS, "max_epochs": -1}
    without = dict.fromkeys(("callbacks", "metrics", "logger", "init_from")) | {"resume": "none"}
    with process_state_restored():
        module, _, trainer = build(config | without | {"trainer": config["trainer"] | short})
        return timed(module, images, trainer, seconds)


@runtime_checkable
class Queue(Protocol):
    """Queue of the work that the host launches on a device."""

    def synchronize(self) -> None:
        """Waits until the device has finished all work."""

    def delay(self, seconds: float) -> None:
        """Lets the device wait before the work that is launched next."""

    def mark(self) -> Any:
        """Launches a mark, and returns it. The device notes the time at which it reaches the mark."""

    def between(self, start: Any, end: Any) -> float:
        """Returns the time between two marks in seconds. The device must have finished all work."""
        ...


class CUDAQueue:
    """Current stream of the current CUDA device."""

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def delay(self, seconds: float) -> None:
        delay_device(seconds)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return start.elapsed_time(end) / 1000


@runtime_checkable
class IterationProbe(Protocol):
    """Measures one iteration, between two calls."""

    def start(self) -> None:
        """Called before the iteration."""

    def stop(self) -> None:
        """Called after the iteration, or if the iteration raises an error."""


class HostTime:
    """Measures the time in which the host launches the work of an iteration, while the device computes.

    If the device is slower, the queue can become full. Then the host waits, but its time remains below the time of the
    device.

    Args:
        queue: queue of the device.
        wall: function that returns the wall-clock time in seconds.

    Attributes:
        times: measured times in seconds.
    """

    def __init__(self, queue: Queue, wall: Callable[[], float] = time.perf_counter) -> None:
        self.queue, self.times = queue, list[float]()
        self._wall, self._start = wall, 0.0

    def start(self) -> None:
        self.queue.synchronize()
        self._start = self._wall()

    def stop(self) -> None:
        self.times.append(self._wall() - self._start)


class DeviceTime:
    """Measures the time in which the device computes an iteration whose work the host launches in advance.

    The device first waits for twice the time of the host, so that it does not wait between operations. If an iteration
    has more operations than the queue can hold, the device still waits for the last ones. Then the measured time is too
    long, but remains below the time of the host if the host is slower.

    Args:
        host: must have measured the previous iteration.

    Attributes:
        times: measured times in seconds.
    """

    def __init__(self, host: HostTime) -> None:
        self.host, self.times = host, list[float]()
        self._start: Any = None

    def start(self) -> None:
        self.host.queue.synchronize()
        self.host.queue.delay(2 * self.host.times[-1])
        self._start = self.host.queue.mark()

    def stop(self) -> None:
        end = self.host.queue.mark()
        self.host.queue.synchronize()
        self.times.append(self.host.queue.between(self._start, end))


class _Counter(OperationCounter):
    """Counts the operations of an iteration, including the callbacks."""

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)


class _Clock(GenerativeCallback):
    """Callback that times blocks of iterations after a warm-up, and then stops the training on all ranks.

    Between the last block and the end, every probe measures one iteration that writes no row of the log, because the
    host waits for the device if it writes a row.

    Args:
        seconds: duration of the timing after the warm-up, in seconds.
        wall: function that returns the wall-clock time in seconds.
        cpu: function that returns the CPU time of this thread in seconds.
        probes: probes to use, in order.

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
        probes: Sequence[IterationProbe] = (),
    ) -> None:
        self.seconds = seconds
        self.times: list[float] = []
        self.images = 0
        self._wall, self._cpu = wall, cpu
        self._iterations = -_WARMUP  # number of timed iterations; negative during the warm-up
        self._block_start = 0.0, 0.0  # wall-clock time and CPU time at the start of the current block
        self._wall_time = self._cpu_time = 0.0  # sums over all timed blocks
        self._probes, self._probe = list(probes), None  # type: list[IterationProbe], IterationProbe | None
        self._is_timed = False  # whether all blocks have been timed

    @property
    def computing(self) -> float:
        return self._cpu_time / self._wall_time if self._wall_time else 1.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.images = len(batch["image"])
        if self._is_timed:
            self._continue_probes(trainer)
            return
        block = _BLOCK.get(pl_module.device.type, 1)
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
            self._is_timed = bool(trainer.strategy.broadcast(is_enough or len(self.times) == _MAX_BLOCKS))
            if self._is_timed:
                self._continue_probes(trainer)
        self._block_start = self._wall(), self._cpu()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop_probe()

    def _continue_probes(self, trainer: Trainer) -> None:
        """Stops the probe of the last iteration, and starts the probe of the next one, or stops the training."""
        self._stop_probe()
        interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector; 0 logs nothing
        if not self._probes:
            trainer.should_stop = True
        elif not interval or (trainer.global_step + 1) % interval:
            self._probe = self._probes.pop(0)
            self._probe.start()

    def _stop_probe(self) -> None:
        if self._probe is not None:
            self._probe.stop()
            self._probe = None


def _median(times: list[float]) -> float | None:
    return statistics.median(times) if times else None


def _peak(device: str) -> int | None:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8", errors="replace").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)
