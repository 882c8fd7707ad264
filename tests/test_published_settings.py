"""The experiments with settings of papers on CelebA and CIFAR-10 start on files in the true format."""

import itertools

import pytest

from lit_gans import build, compose
from tests.data.sources.test_torchvision_sets import write_celeba, write_cifar

# images per step of the discriminator, and iterations
SETTINGS = {"dcgan": (128, {"cifar10": 100_000, "celeba": 80_000})}
SETTINGS |= dict.fromkeys(("sngan", "wgan_gp", "d2gan"), (64, {"cifar10": 100_000, "celeba": 100_000}))
TINY = (
    "metrics=none",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
    "model.n_critic=1",
    "model.generator_width=4",
    "model.discriminator_width=4",
    "data.batch_size=2",
    "trainer.max_steps=1",
)


@pytest.mark.runs
@pytest.mark.parametrize(("gan", "data"), [*itertools.product(SETTINGS, ("cifar10", "celeba"))])
def test_an_experiment_has_the_settings_of_its_paper_and_starts(gan, data, tmp_path, monkeypatch):
    write = {"cifar10": write_cifar, "celeba": write_celeba}[data]
    write(tmp_path, monkeypatch)
    whole = compose(f"experiment={gan}_{data}")
    assert (whole.data.batch_size, whole.trainer.max_steps) == (SETTINGS[gan][0], SETTINGS[gan][1][data])
    assert whole.metrics.num_samples == 50_000
    monkeypatch.chdir(tmp_path)
    small = compose(f"experiment={gan}_{data}", f"data.root={tmp_path}", *TINY)
    module, images, trainer = build(small)
    trainer.fit(module, datamodule=images)
    size = {"cifar10": 32, "celeba": 64}[data]
    assert module.sample(2).shape == (2, 3, size, size)
