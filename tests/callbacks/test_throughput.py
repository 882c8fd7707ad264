import time

import pytest

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
