"""`lit-gans fit` with our strategies: the same weights as `lit-gans train`."""

import os
import subprocess
import sys

import pytest
import torch
import yaml

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


def run(arguments, folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    command = [sys.executable, "-m", "lit_gans", *arguments]
    done = subprocess.run(command, cwd=folder, env=kept, timeout=200, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    run(TRAIN, folder)
    run(["fit", "-c", "run/run.yaml"], folder)
    return folder


def test_the_configuration_of_a_run_trains_the_same_weights(folder):
    one, other = (
        torch.load(next((folder / "run").glob(f"{place}checkpoints/last.ckpt")), weights_only=True)
        for place in ("", "fit/")
    )
    assert one["global_step"] == other["global_step"] == 3
    for name, value in one["state_dict"].items():
        assert torch.equal(other["state_dict"][name], value), name


def test_a_strategy_is_chosen_by_its_class(command):
    fit = ["fit", "--model", "GAN", "--model.generator_width", "4", "--data", "Digits", "--data.image_size", "16"]
    fit += ["--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--trainer.devices", "2"]
    fit += ["--trainer.strategy.class_path", "lit_gans.strategies.ddp.NetworkDDP", "--trainer.logger", "false"]
    fit += ["--trainer.strategy.gradient_compression", "bf16", "--print_config"]
    code, printed, errors = command(*fit)
    assert code == 0, errors
    strategy = yaml.safe_load(printed)["trainer"]["strategy"]
    assert strategy["class_path"] == "lit_gans.strategies.ddp.NetworkDDP"
    assert strategy["init_args"]["gradient_compression"] == "bf16"
