"""When a training computes, communicates and waits for data: from DDP's hooks on a CPU, from the profiler on CUDA."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch.autograd import DeviceType
from torch.autograd.profiler import record_function
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from benchmarks.study.tables import SHARES
from lit_gans.strategies.ddp import NetworkDDP

Intervals = list[tuple[float, float]]
_FETCH = "study/fetch"


def divide(start: float, end: float, **intervals: Intervals) -> dict[str, float]:
    """Returns the seconds of a step by `SHARES`, which add up to the step.

    Args:
        start, end: times of the step.
        **intervals: times of `computing`, which stops where the host is `blocked`, `communicating` and `fetching`,
            which counts only while nothing else happens.
    """
    marks = [(end, 0, "")]
    for name, each in intervals.items():
        clipped = ((max(one, start), min(other, end)) for one, other in each)
        marks += [mark for one, other in clipped if one < other for mark in ((one, 1, name), (other, -1, name))]
    found, running, since = dict.fromkeys(SHARES, 0.0), Counter[str](), start
    for now, change, name in sorted(marks):
        computes = running["computing"] and not running["blocked"]
        if running["communicating"]:
            share = "both" if computes else "communication"
        else:
            share = "computation" if computes else "data" if running["fetching"] else "idle"
        found[share] += now - since
        running[name] += change
        since = now
    return found


def _mean(steps: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(step[name] for step in steps) / len(steps) for name in SHARES}


class Timeline:
    """Times in seconds of one process.

    On a CPU the host computes, and it stops only where it waits: for a batch, for an all-reduce that it starts and
    waits for, and at the end of a backward for the buckets that are still being reduced. Everything else counts as
    computation.

    Attributes:
        communicating: times from the start of an all-reduce to its end.
        blocked: times in which the host does nothing but wait for one.
        fetching: times in which the host fetches and copies a batch.
        steps: times of the ends of the steps.
    """

    def __init__(self) -> None:
        self.communicating: Intervals = []
        self.blocked: Intervals = []
        self.fetching: Intervals = []
        self.steps: list[float] = []
        self._launched = 0.0
        self._in_backward: Intervals = []

    def hook(self, state, bucket):  # torch refuses annotations that are strings, as here all are
        """Averages a bucket, as a communication hook of DDP, and records how long it takes."""
        start = time.perf_counter()
        future = allreduce_hook(None, bucket)

        def done(finished):
            self._in_backward.append((start, time.perf_counter()))
            value = finished.value()
            return value[0] if isinstance(value, list) else value

        self._launched = time.perf_counter()
        return future.then(done)

    def end_backward(self) -> None:
        """Records that DDP has waited for all buckets: from the last gradient to the end of the last all-reduce."""
        if self._in_backward:
            self.communicating += self._in_backward
            self.blocked.append((self._launched, max(end for _, end in self._in_backward)))
            self._in_backward = []

    @contextmanager
    def reducing(self) -> Iterator[None]:
        """Records an all-reduce that the host waits for."""
        start = time.perf_counter()
        yield
        self.communicating.append((start, time.perf_counter()))
        self.blocked.append(self.communicating[-1])

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Records the fetch or the copy of a batch."""
        start = time.perf_counter()
        with record_function(_FETCH):
            yield
        self.fetching.append((start, time.perf_counter()))

    def shares(self, first: int) -> dict[str, float]:
        """Returns the mean seconds of a step by `SHARES`, from step number `first` on."""
        waits = {"blocked": [*self.blocked, *self.fetching], "communicating": self.communicating}
        waits["fetching"] = self.fetching
        pairs = pairwise(self.steps[first - 1 :])
        return _mean([divide(start, end, computing=[(start, end)], **waits) for start, end in pairs])


class TimedDDP(NetworkDDP):
    """`NetworkDDP` whose all-reduces are recorded."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for replica in self.replicas.values():
            replica.register_comm_hook(None, self._timeline.hook)

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().backward(*args, **kwargs)
        self._timeline.end_backward()
        return loss

    def average_statistics(self) -> None:
        with self._timeline.reducing():
            super().average_statistics()

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        with self._timeline.reducing():
            return super().reduce(*args, **kwargs)


class Steps(Callback):
    """Records the ends of the steps."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._timeline.steps.append(time.perf_counter())


class TimedData(LightningDataModule):
    """Data whose fetches and copies are recorded."""

    def __init__(self, data: LightningDataModule, timeline: Timeline) -> None:
        super().__init__()
        self._data, self._timeline = data, timeline

    def prepare_data(self) -> None:
        self._data.prepare_data()

    def setup(self, stage: str) -> None:
        self._data.trainer = self.trainer
        self._data.setup(stage)

    def train_dataloader(self) -> Any:
        return _TimedLoader(self._data.train_dataloader(), self._timeline)

    def transfer_batch_to_device(self, *arguments: Any) -> Any:
        with self._timeline.loading():
            return self._data.transfer_batch_to_device(*arguments)

    def on_after_batch_transfer(self, *arguments: Any) -> Any:
        with self._timeline.loading():
            return self._data.on_after_batch_transfer(*arguments)


class _TimedLoader:
    def __init__(self, loader: Any, timeline: Timeline) -> None:
        self._loader, self._timeline = loader, timeline

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            with self._timeline.loading():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class DeviceProfile(Callback):
    """Profiles the CUDA device after a number of steps."""

    def __init__(self, first: int) -> None:
        self._first, self.steps = first, 0
        self._profile = torch.profiler.profile()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self._first:
            torch.cuda.synchronize()
            self._profile.start()
        self.steps = trainer.global_step - self._first

    def on_train_end(self, *_: Any) -> None:
        torch.cuda.synchronize()
        self._profile.stop()

    def shares(self) -> dict[str, float]:
        """Returns the mean seconds of a step by `SHARES`, from the first to the last kernel of the device."""
        return device_shares(list(self._profile.events() or []), self.steps)


def device_shares(events: list[Any], steps: int) -> dict[str, float]:
    """Returns the mean seconds of a step by `SHARES`, from the events of `torch.profiler.profile.events()`."""
    found: dict[str, Intervals] = {"computing": [], "communicating": [], "fetching": []}
    for event in events:
        times = (event.time_range.start / 1e6, event.time_range.end / 1e6)
        if event.device_type == DeviceType.CUDA:
            found["communicating" if event.name.startswith("nccl") else "computing"].append(times)
        elif event.name == _FETCH:
            found["fetching"].append(times)
    busy = [*found["computing"], *found["communicating"]]
    shares = divide(min(start for start, _ in busy), max(end for _, end in busy), **found)
    return {name: seconds / steps for name, seconds in shares.items()}
