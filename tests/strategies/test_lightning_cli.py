"""`lit-gans fit` with our strategies: the same weights as `lit-gans train`."""

import pytest
import torch
import yaml

from . import ranks

TRAIN = ["train", "model=gan", "model.generator_width=4", "model.discriminator_width=4", "model.latent_dim=6"]
TRAIN += [
    "data=digits",
    "data.image_size=16",
    "data.batch_size=4",
    "metrics=none",
    "logger=none",
    "callbacks.samples=null",
]
TRAIN += ["trainer.max_steps=3", "trainer.accelerator=cpu", "trainer.devices=2", "strategy=ddp", "hydra.run.dir=run"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trains on two ranks, and with their file again."""
    folder = tmp_path_factory.mktemp("cli")
    codes, printed = ranks.command_line(TRAIN, folder, ranks.environments(2))
    assert not any(codes), printed
    codes, printed = ranks.command_line(["fit", "-c", "run/run.yaml"], folder, ranks.environments(2))
    assert not any(codes), printed
    return folder


def test_the_configuration_of_a_run_trains_the_same_weights(folder):
    one, other = (
        torch.load(next((folder / "run").glob(f"{place}checkpoints/last.ckpt")), weights_only=True)
        for place in ("", "fit/")
    )
    assert one["global_step"] == other["global_step"] == 3
    for name, value in one["state_dict"].items():
        assert torch.equal(other["state_dict"][name], value), name


def test_a_strategy_is_chosen_by_its_name(command):
    fit = ["fit", "--model", "GAN", "--data", "Digits", "--trainer.accelerator", "cpu", "--trainer.logger", "false"]
    code, printed, errors = command(*fit, "--trainer.strategy", "network_ddp", "--print_config")
    assert code == 0, errors
    assert yaml.safe_load(printed)["trainer"]["strategy"] == "network_ddp"
