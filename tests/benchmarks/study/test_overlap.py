"""Overlap: the arithmetic of intervals, and a run whose computation, communication and data are known sleeps."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.autograd import DeviceType

from benchmarks.measure import quiet_trainer
from benchmarks.study.intervals import SHARES, clip, divide, length, union, without
from benchmarks.study.timeline import Steps, TimedData, TimedDDP, Timeline, device_shares, mean_shares

FORWARD, BACKWARD, REDUCE, FETCH = 0.05, 0.06, 0.1, 0.04
LAYERS, STEPS = 3, 3


def test_intervals():
    assert union([(3, 4), (0, 1), (0.5, 2), (5, 5)]) == [(0, 2), (3, 4)]
    assert clip([(0, 2), (3, 9)], 1, 4) == [(1, 2), (3, 4)]
    assert without([(0, 10)], [(1, 2), (4, 5), (9, 12)]) == [(0, 1), (2, 4), (5, 9)]
    assert length([(0, 2), (1, 3)]) == 3


def test_a_step_is_divided_without_remainder():
    found = divide(0, 10, [(0, 4), (6, 7)], [(3, 6), (6.5, 8)], [(7.5, 9)])
    assert found == {"computation": 3.5, "communication": 3, "both": 1.5, "data": 1, "idle": 1}
    assert sum(found.values()) == 10


def test_kernels_of_a_device_are_told_apart_by_their_names():
    def event(name, start, end, device=DeviceType.CUDA):
        span = SimpleNamespace(start=start * 1e6, end=end * 1e6)
        return SimpleNamespace(name=name, device_type=device, time_range=span)

    events = [event("cudnn::conv", 0, 4), event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, 6), event("adam", 8, 10)]
    events += [event("study/fetch", 6, 7, DeviceType.CPU), event("aten::conv2d", 0, 10, DeviceType.CPU)]
    found = device_shares(events, 2)
    assert found == {"computation": 2.5, "communication": 1, "both": 0.5, "data": 0.5, "idle": 0.5}


class Truth:
    """When the run below really slept, by its own clock."""

    def __init__(self):
        self.computing, self.communicating, self.fetching = [], [], []

    def sleep(self, seconds, kind):
        start = time.perf_counter()
        time.sleep(seconds)
        kind.append((start, time.perf_counter()))


class Sleeps(torch.autograd.Function):
    """Sleeps in forward and in backward."""

    @staticmethod
    def forward(ctx, x, truth):
        ctx.truth = truth
        truth.sleep(FORWARD, truth.computing)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.truth.sleep(BACKWARD, ctx.truth.computing)
        return gradient, None


class Sleepy(LightningModule):
    """Layers whose parameters have one bucket each."""

    def __init__(self, truth):
        super().__init__()
        self.automatic_optimization = False
        self.truth = truth
        self.layers = nn.ModuleList(nn.Linear(1000, 1000, bias=False) for _ in range(LAYERS))

    def training_step(self, batch, batch_idx):
        x = batch
        for layer in self.layers:
            x = Sleeps.apply(layer(x), self.truth)
        self.manual_backward(x.sum())
        optimizer = self.optimizers()
        optimizer.step()
        optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


class SleepyData(LightningDataModule):
    def __init__(self, truth):
        super().__init__()
        self.truth = truth

    def train_dataloader(self):
        return SleepyLoader(self.truth)


class SleepyLoader:
    def __init__(self, truth):
        self.truth = truth

    def __len__(self):
        return STEPS

    def __iter__(self):
        for _ in range(STEPS):
            self.truth.sleep(FETCH, self.truth.fetching)
            yield torch.ones(1, 1000)


class SleepyWire:
    """A communication hook that reduces one bucket after the other, each in the same time."""

    def __init__(self, truth):
        self.truth, self.busy_until = truth, 0.0

    def __call__(self, state, bucket):
        called, future, buffer = time.perf_counter(), torch.futures.Future(), bucket.buffer()
        self.busy_until = max(self.busy_until, called) + REDUCE

        def end():
            self.truth.communicating.append((called, time.perf_counter()))
            future.set_result(buffer)

        threading.Timer(self.busy_until - called, end).start()
        return future


def test_known_sleeps_are_found_and_add_up_to_the_step():
    timeline, truth = Timeline(), Truth()
    strategy = TimedDDP(timeline, SleepyWire(truth), bucket_cap_mb=0.1)
    trainer = quiet_trainer("cpu", devices=1, strategy=strategy, max_epochs=1, callbacks=[Steps(timeline)])
    trainer.fit(Sleepy(truth), datamodule=TimedData(SleepyData(truth), timeline))
    assert len(timeline.shares(1)) == STEPS - 1
    found = mean_shares(timeline.shares(1))  # without the first, in which DDP has not yet built its buckets
    start, end = timeline.steps[0], timeline.steps[-1]
    assert sum(found.values()) == pytest.approx((end - start) / (STEPS - 1), rel=0.02)

    wire, computed = clip(truth.communicating, start, end), clip(truth.computing, start, end)
    together = length(wire) + length(computed) - length([*wire, *computed])
    alone = sum(finished - started for started, finished in timeline.blocked if started > start)
    expected = {
        "communication": min(alone, length(wire) - together),
        "data": length(clip(truth.fetching, start, end)),
        "idle": 0.0,
    }
    assert alone == pytest.approx((STEPS - 1) * (LAYERS * REDUCE - (LAYERS - 1) * BACKWARD), rel=0.25)
    step = (end - start) / (STEPS - 1)
    assert found.keys() == {*SHARES}
    for name, seconds in expected.items():
        assert found[name] == pytest.approx(seconds / (STEPS - 1), abs=0.05 * step), name
    assert found["both"] >= together / (STEPS - 1) - 0.05 * step
    assert found["computation"] + found["both"] >= length(computed) / (STEPS - 1) - 0.05 * step
    assert found["communication"] + found["both"] == pytest.approx(length(wire) / (STEPS - 1), abs=0.05 * step)
