"""What is suggested for a key that does not exist."""

import pytest
from omegaconf import OmegaConf

from lit_gans import compose
from lit_gans.config.hints import did_you_mean, suggested_keys

RATES = ["model.generator_optimizer.lr", "model.discriminator_optimizer.lr"]


@pytest.fixture(scope="module")
def config():
    return compose("model=dcgan", "data=digits", "metrics=digits")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("max_steps", ["trainer.max_steps"]),
        ("steps", ["trainer.max_steps"]),
        ("iterations", ["trainer.max_steps"]),
        ("epochs", ["trainer.max_epochs"]),
        ("lr", RATES),
        ("model.lr", RATES),
        ("trainer.lr", RATES),
        ("optimizer.lr", RATES),
        ("batch_size", ["data.batch_size", "metrics.batch_size"]),
        ("model.batch_size", ["data.batch_size", "metrics.batch_size"]),
        ("gpus", ["trainer.devices"]),
        ("devices", ["trainer.devices"]),
        ("trainer.gpus", ["trainer.devices"]),
        ("latent_dim", ["model.latent_dim"]),
        ("width", ["model.generator_width", "model.discriminator_width"]),
        ("num_samples", ["metrics.num_samples"]),
        ("decay", ["callbacks.ema.decay"]),
        ("image_size", ["data.image_size"]),
        ("n_critc", []),
        ("data.root", []),
        ("model.n_critc", ["model.n_critic"]),
        ("xyz", []),
    ],
)
def test_keys_of_the_same_name_or_its_initials_or_words(config, key, expected):
    assert suggested_keys(key, config) == expected


def test_suggestions_are_existing_keys_and_few(config):
    for key in ("seed_", "a", "every_n_steps", "num", "model.seeds", "lr", "patience"):
        found = suggested_keys(key, config)
        assert len(found) <= 3
        for path in found:
            parent, _, name = path.rpartition(".")
            assert name in OmegaConf.select(config, parent)


def test_keys_without_a_value_and_longer_ones_are_left_out():
    config = OmegaConf.create({"a": {"min_steps": None, "max_steps": 3}, "b": {"every_n_steps": 2}})
    assert suggested_keys("steps", config) == ["a.max_steps"]


def test_keys_of_data_and_of_groups_that_are_none_say_what_to_choose(config):
    assert did_you_mean("data.root", config) == "data=folder data.root=FOLDER is a folder of images."
    none = OmegaConf.create({"metrics": None, "data": {}})
    assert did_you_mean("metrics.num_samples", none) == "metrics is none: leave it out, or choose metrics=NAME."
    assert "is none" not in did_you_mean("metrics.num_sample", config)
