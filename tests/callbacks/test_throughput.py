import time
from unittest.mock import Mock, create_autospec

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks import PairedMetrics, RunCheckpoint, Samples, Throughput
from lit_gans.callbacks.throughput import paused

from .test_progress_bar import Clock, slowed


@pytest.fixture
def clocks(monkeypatch):
    """Wall and processor time that a test sets."""
    now = {"wall": 100.0, "processor": 7.0}
    monkeypatch.setattr(time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(time, "process_time", lambda: now["processor"])
    return now


def attached(callback, **settings):
    """A trainer with the callback, and a module on the CPU."""
    trainer, module = create_autospec(Trainer, instance=True), create_autospec(LightningModule, instance=True)
    trainer.callbacks, trainer.world_size, trainer.log_every_n_steps = [callback], 1, 2
    vars(trainer).update(settings)
    module.device = torch.device("cpu")
    return trainer, module


IMAGES = torch.zeros(6, 1, 2, 2)


@pytest.mark.parametrize("batch", [{"image": IMAGES}, [IMAGES, torch.zeros(6)], IMAGES])
def test_counts_the_images_of_all_ranks_and_the_seconds_before_a_resume(clocks, batch):
    callback = Throughput()
    trainer, module = attached(callback, global_step=2, world_size=3)
    callback.on_train_start(trainer, module)
    clocks["wall"] += 2.0
    callback.on_train_batch_end(trainer, module, None, batch, 0)
    logged = module.log_dict.call_args.args[0]
    assert logged["throughput/images_per_second"] == pytest.approx(6 * 3 / 2)
    assert logged["throughput/seconds"] == pytest.approx(2)
    clocks["wall"] += 1.0
    callback.on_train_batch_end(trainer, module, None, batch, 0)
    assert callback.images_per_second == pytest.approx(6 * 3 / 1), "images and time begin anew after each value"
    assert callback.mean_images_per_second == pytest.approx(2 * 6 * 3 / 3)
    resumed = Throughput()
    resumed.load_state_dict(callback.state_dict())
    trainer.callbacks = [resumed]
    resumed.on_train_start(trainer, module)
    clocks["wall"] += 4.0
    resumed.on_train_batch_end(trainer, module, None, batch, 0)
    assert module.log_dict.call_args.args[0]["throughput/seconds"] == pytest.approx(2 + 1 + 4)
    assert resumed.state_dict() == {"seconds": pytest.approx(2 + 1 + 4)}, "for a second resume"


def test_utilization_is_processor_time_and_the_share_between_steps_without_what_is_paused(clocks):
    callback = Throughput()
    trainer, module = attached(callback)
    callback.on_train_start(trainer, module)
    clocks["wall"] += 50.0  # before the first step nothing waits for a previous one
    for step, waits in ((1, 0.0), (2, 3.0)):
        clocks["wall"] += waits
        callback.on_train_batch_start(trainer, module, None, 0)
        clocks["wall"] += 1.0
        clocks["processor"] += 6.5
        trainer.global_step = step
        callback.on_train_batch_end(trainer, module, None, IMAGES, 0)
        with paused(trainer):
            clocks["wall"] += 5.0
            clocks["processor"] += 9.0
    module.log_dict.assert_called_once()  # at the logged iteration alone
    seconds = 50 + 1 + 3 + 1
    assert module.log_dict.call_args.args[0] == {
        "throughput/images_per_second": pytest.approx(12 / seconds),
        "throughput/seconds": pytest.approx(seconds),
        "utilization/processor": pytest.approx(13 / seconds),
        "utilization/waiting": pytest.approx(3 / seconds),
    }
    assert callback.seconds == pytest.approx(seconds)
    clocks["wall"] += 2.0
    trainer.global_step = 3
    callback.on_train_batch_end(trainer, module, None, IMAGES, 0)
    callback.on_train_end(trainer, module)
    clocks["wall"] += 100.0
    assert callback.seconds == pytest.approx(seconds + 2), "the time ends with the training"
    assert callback.mean_images_per_second == pytest.approx(18 / (seconds + 2)), "iterations after the last value count"


def test_of_a_training_all_updates_count_and_no_time_of_samples_measurements_and_checkpoints(
    tiny_gan, random_images, fit, monkeypatch
):
    """The clock goes on in these and in the loader alone."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    callback, metrics, module = Throughput(), PairedMetrics(every_n_steps=1, num_samples=4), tiny_gan("pix2pix")
    for owner, name in ((module, "sample_grid"), (metrics, "measure"), (torch, "save")):
        monkeypatch.setattr(owner, name, slowed(getattr(owner, name), clock, 50.0))
    module.on_train_batch_start = slowed(module.on_train_batch_start, clock, 2.0)
    callbacks = [metrics, Samples(every_n_steps=1, num=4), RunCheckpoint(every_n_train_steps=1), callback]
    arguments = {"enable_checkpointing": True, "log_every_n_steps": 1}
    trainer = fit(module, random_images(), max_steps=3, callbacks=callbacks, **arguments)
    assert callback.seconds == pytest.approx(3 * 2.0)
    assert callback.mean_images_per_second == pytest.approx(8 / 2.0)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert logged["throughput/images_per_second"] == pytest.approx(8 / 2.0)
    assert "utilization/device" not in logged, "a CPU has no such counter"


def test_a_device_that_does_not_tell_is_left_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 2**29)
    for answer, expected in ((40, {"utilization/device": 0.4}), (ModuleNotFoundError(), {}), (RuntimeError(), {})):
        monkeypatch.setattr(torch.cuda, "utilization", Mock(side_effect=[answer]))
        found = Throughput()._utilization(1.0, torch.device("cuda"))
        memory = found.pop("utilization/device_memory_gib")
        assert memory == 1.5
        assert {name: value for name, value in found.items() if name.startswith("utilization/device")} == expected
