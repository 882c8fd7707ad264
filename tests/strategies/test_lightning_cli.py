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


FIT = ["fit", "--model", "GAN", "--model.generator_width", "4", "--data", "Digits", "--data.image_size", "16"]
FIT += ["--trainer.accelerator", "cpu", "--trainer.logger", "false", "--print_config"]
BY_CLASS = ["--trainer.strategy.class_path", "lit_gans.strategies.ddp.NetworkDDP"]
BY_CLASS += ["--trainer.strategy.gradient_compression", "bf16"]


@pytest.mark.parametrize("chosen", [["--trainer.strategy", "network_ddp"], BY_CLASS], ids=["name", "class"])
def test_a_strategy_is_chosen_by_its_name_or_class(command, chosen):
    code, printed, errors = command(*FIT, *chosen)
    assert code == 0, errors
    strategy = yaml.safe_load(printed)["trainer"]["strategy"]
    if chosen is BY_CLASS:
        assert strategy["class_path"] == "lit_gans.strategies.ddp.NetworkDDP"
        assert strategy["init_args"]["gradient_compression"] == "bf16"
    else:
        assert strategy == "network_ddp"
