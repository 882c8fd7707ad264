import time
from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks import Throughput
from lit_gans.callbacks.throughput import paused


def test_counts_real_images_of_all_updates_and_leaves_out_what_is_paused(tiny_gan, random_images, fit, monkeypatch):
    clock = iter(range(1000))  # every look at the clock is one second later
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    callback = Throughput()
    trainer = fit(
        tiny_gan(n_critic=2), random_images(batch_size=8), max_steps=2, callbacks=[callback], log_every_n_steps=2
    )
    assert callback.images_per_second == pytest.approx(2 * 2 * 8 / 1)
    with paused(trainer):
        pass
    assert callback._excluded == 1


def test_counts_the_images_of_all_ranks_in_every_kind_of_batch(tiny_gan, random_images, fit, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    callback = Throughput()
    trainer = fit(tiny_gan(), random_images(batch_size=8), max_steps=4, callbacks=[callback], log_every_n_steps=2)
    assert callback.images_per_second == pytest.approx(2 * 8 / 1)
    assert trainer.callback_metrics["throughput/images_per_second"].item() == pytest.approx(16)
    monkeypatch.setattr(type(trainer), "world_size", 3)
    module = create_autospec(LightningModule, instance=True)
    images = torch.zeros(5, 1, 2, 2)
    for batch in ({"image": images}, [images, torch.zeros(5)], images):
        callback.on_train_start(trainer, module)
        callback.on_train_batch_end(trainer, module, None, batch, 0)
        assert callback.images_per_second == pytest.approx(5 * 3 / 1)


def test_time_that_is_paused_is_taken_off(tiny_gan, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    callback, trainer = Throughput(), create_autospec(Trainer, instance=True)
    trainer.callbacks, trainer.world_size, trainer.global_step, trainer.log_every_n_steps = [callback], 1, 2, 2
    module = create_autospec(LightningModule, instance=True)
    callback.on_train_start(trainer, module)
    with paused(trainer):
        now[0] = 8.0
    now[0] = 10.0
    callback.on_train_batch_end(trainer, module, None, torch.zeros(6, 1, 2, 2), 0)
    module.log.assert_called_once_with("throughput/images_per_second", pytest.approx(6 / 2))
    now[0] = 11.0
    callback.on_train_batch_end(trainer, module, None, torch.zeros(6, 1, 2, 2), 0)
    assert callback.images_per_second == pytest.approx(6 / 1), "images and time begin anew after each value"
