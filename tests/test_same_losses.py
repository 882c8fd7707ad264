"""The same seed gives the same 100 losses on the same machine."""

import pytest
from lightning.pytorch import Callback

from lit_gans.config.registry import gans
from lit_gans.strategies.ddp import NetworkDDP
from tests.strategies import ranks
from tests.tiny import fit, random_images, tiny_gan

STEPS = 100
GANS = sorted(gans())


class Losses(Callback):
    """Notes the losses of every iteration."""

    def __init__(self):
        self.noted = []

    def on_train_batch_end(self, trainer, *_):
        losses = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("loss/")}
        self.noted.append(losses)


def losses(name, world_size=1):
    """Trains a GAN and returns the losses of its iterations."""
    noted, data = Losses(), random_images(batch_size=4 // world_size)
    strategy = NetworkDDP() if world_size > 1 else "auto"
    fit(tiny_gan(name, seed=3, n_critic=1), data, STEPS, devices=world_size, strategy=strategy, callbacks=[noted])
    return noted.noted


def on_a_rank(name):
    return losses(name, 2)


def assert_equal(first, second):
    assert len(first) == STEPS
    assert first == second
    assert len({loss["loss/generator"] for loss in first}) > STEPS // 2, "the training stands still"


@pytest.mark.parametrize(
    "name", [name if name == "gan" else pytest.param(name, marks=pytest.mark.slow) for name in GANS]
)
def test_one_process(name):
    assert_equal(losses(name), losses(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", GANS)
def test_two_ranks(tmp_path, name):
    first, second = (ranks.run("tests.test_same_losses.on_a_rank", tmp_path, name=name) for _ in range(2))
    for ours, theirs in zip(first, second, strict=True):
        assert_equal(ours, theirs)
