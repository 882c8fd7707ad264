"""Short trainings that are timed: what the host and the device need, and what remains without enough memory."""

import weakref

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks import EMA
from lit_gans.cli.timing import ENDLESS, DeviceTime, HostTime, Timing, _Clock, timed, unless_out_of_memory
from lit_gans.common.errors import RefusedInput
from lit_gans.common.operations import count_operations
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.step import TrainingStep


class SimulatedGPU:
    """A queue of operations, each of which the host launches and the device computes.

    Args:
        launch: seconds in which the host launches an operation.
        kernel: seconds in which the device computes an operation.
        capacity: number of operations in the queue from which on the host waits.
    """

    def __init__(self, launch, kernel, capacity=1000):
        self.launch, self.kernel, self.capacity = launch, kernel, capacity
        self.host, self.ends = 0.0, [0.0]

    def _queue(self, seconds):
        if len(self.ends) > self.capacity:
            self.host = max(self.host, self.ends[-self.capacity])
        self.ends.append(max(self.host, self.ends[-1]) + seconds)

    def iterate(self, operations):
        for _ in range(operations):
            self.host += self.launch
            self._queue(self.kernel)

    def synchronize(self):
        self.host = max(self.host, self.ends[-1])

    def delay(self, seconds):
        self._queue(seconds)

    def mark(self):
        self._queue(0.0)
        return len(self.ends) - 1

    def between(self, start, end):
        return self.ends[end] - self.ends[start]


def measured(gpu, operations):
    host = HostTime(gpu, lambda: gpu.host)
    device = DeviceTime(host)
    gpu.iterate(2000)  # iterations before, whose work must not be measured
    for probe in (host, device) * 2:
        probe.start()
        gpu.iterate(operations)
        probe.stop()
    return host.times[0], device.times[0]


def test_host_and_device_are_told_apart_although_they_work_at_the_same_time():
    host, device = measured(SimulatedGPU(10e-6, 2e-6), 200)
    assert host == pytest.approx(200 * 10e-6)
    assert device == pytest.approx(200 * 2e-6), "it does not wait for the host"
    host, device = measured(SimulatedGPU(10e-6, 50e-6), 200)
    assert host == pytest.approx(200 * 10e-6), "it does not wait for the device"
    assert device == pytest.approx(200 * 50e-6)


@pytest.mark.parametrize(("launch", "kernel"), [(10e-6, 2e-6), (10e-6, 8e-6), (10e-6, 13e-6), (10e-6, 100e-6)])
@pytest.mark.parametrize("operations", [100, 999, 3000, 10_000])
def test_the_slower_one_is_found_also_if_the_queue_is_full(launch, kernel, operations):
    host, device = measured(SimulatedGPU(launch, kernel), operations)
    assert (host > device) == (launch > kernel)
    assert max(host, device) == pytest.approx(operations * max(launch, kernel), rel=0.01)


class Noted:
    def __init__(self, events):
        self.events = events

    def start(self):
        self.events.append("start")

    def stop(self):
        self.events.append("stop")


@pytest.mark.parametrize("interval", [100, 4])
def test_each_probe_measures_an_iteration_that_does_not_log(tiny_gan, random_images, fit, interval):
    """Three iterations warm up and three are timed. Then the trainer's next row may be due."""
    events = []

    class Module(type(tiny_gan())):
        def training_step(self, data, batch_idx):
            events.append("iteration")
            return super().training_step(data, batch_idx)

    module = tiny_gan()
    module.__class__ = Module
    clock = _Clock(0.0, probes=[Noted(events), Noted(events)])
    trainer = fit(module, random_images(), max_steps=50, callbacks=[clock], log_every_n_steps=interval)
    if interval == 4:  # iterations 8 and 12 log
        rest = ["start", "iteration", "stop", "iteration", "start", "iteration", "stop"]
    else:
        rest = ["start", "iteration", "stop"] * 2
    assert events == ["iteration"] * 6 + rest
    assert trainer.global_step == events.count("iteration"), "and it ends"


def test_a_probe_is_stopped_by_an_error(tiny_gan, random_images, fit, monkeypatch):
    clock = _Clock(0.0, probes=[Noted(events := [])])
    module = tiny_gan()
    step = module.training_step

    def failing(data, batch_idx):
        if events:
            raise KeyError("planted")
        return step(data, batch_idx)

    monkeypatch.setattr(module, "training_step", failing)
    with pytest.raises(KeyError, match="planted"):
        fit(module, random_images(), max_steps=50, callbacks=[clock])
    assert events == ["start", "stop"]


@pytest.fixture
def trainer(tmp_path):
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return lambda *callbacks: Trainer(
        accelerator="cpu", max_steps=ENDLESS, default_root_dir=tmp_path, callbacks=[*callbacks], **silent
    )


def test_operations_are_those_of_an_iteration_with_its_callbacks(tiny_gan, random_images, trainer):
    module = tiny_gan()
    step, images = TrainingStep(module.train(), module.new_backend()), torch.zeros(4, *module.image_shape)
    step(images, 0)
    alone = count_operations(lambda: step(images, 1))
    data = random_images()
    of_step, with_average, without = (
        timed(tiny_gan(), data, trainer(*callbacks), 0.0, counts=counts)
        for callbacks, counts in (((), True), ((EMA(),), True), ((), False))
    )
    assert alone <= of_step.operations <= alone + 20, "conversion of the batch"
    assert with_average.operations > of_step.operations
    assert without.operations is None
    assert (of_step.host, of_step.device) == (None, None), "on a CPU, nothing is launched in advance"


def test_nothing_remains_of_a_training_without_memory(tiny_gan, random_images, trainer, monkeypatch):
    modules, step = [], DCGAN.discriminator_losses

    def without_memory(module, *arguments):
        modules.append(weakref.ref(module))
        if len(modules) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return step(module, *arguments)

    monkeypatch.setattr(DCGAN, "discriminator_losses", without_memory)
    assert unless_out_of_memory(lambda: timed(tiny_gan("dcgan"), random_images(), trainer(), 0.0)) is None
    assert len(modules) == 2
    assert modules[0]() is None, "the networks are not in memory"
    assert isinstance(unless_out_of_memory(lambda: timed(tiny_gan(), random_images(), trainer(), 0.0)), Timing)


def test_other_errors_are_raised():
    for error in (RuntimeError("shapes differ"), RefusedInput("no such GAN")):
        with pytest.raises(type(error)) as raised:
            unless_out_of_memory(lambda error=error: (_ for _ in ()).throw(error))
        assert raised.value is error
