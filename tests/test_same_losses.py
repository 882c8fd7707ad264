"""The same seed gives the same 100 losses on the same machine."""

import pytest
from lightning.pytorch import Callback, Trainer

from lit_gans.config.registry import gans
from lit_gans.strategies.ddp import NetworkDDP
from tests.strategies import ranks
from tests.tiny import SETTINGS, SMALL, WIDTHS, RandomImages

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
    noted, quiet = Losses(), ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_steps=STEPS,
        max_epochs=-1,
        accelerator="cpu",
        devices=world_size,
        strategy=NetworkDDP() if world_size > 1 else "auto",
        callbacks=[noted],
        **dict.fromkeys(quiet, False),
    )
    data = RandomImages(image_size=16, channels=1, batch_size=4 // world_size)
    trainer.fit(gans()[name](**{**SMALL, **WIDTHS, **SETTINGS.get(name, {}), "seed": 3, "n_critic": 1}), data)
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
