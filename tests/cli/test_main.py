"""The command line: refusals with the right key, and the commands on a tiny run."""

import json

import pytest
import yaml

from lit_gans.cli import main as cli
from lit_gans.cli.command import names
from tests.commands import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("trained")
    assert cli.run(["train", *TINY, "trainer.max_steps=3", f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.mark.runs
def test_evaluate_says_what_the_checkpoint_does_not(ran, refused, trained):
    last = f"checkpoint={trained}/checkpoints/last.ckpt"
    few = ["metrics=digits", "metrics.num_samples=40"]
    assert "metrics=digits" in refused("evaluate", last), "it was trained without metrics"
    assert "add data.image_size=16" in refused("evaluate", last, "data=digits", *few)
    ran("evaluate", last, *few)
    values = json.loads((trained / "checkpoints/evaluation_last.json").read_text())
    assert values["weights"] == "ema"


@pytest.mark.runs
def test_the_folder_of_a_run_is_its_checkpoint(command, ran, trained, tmp_path):
    last = trained / "checkpoints/last.ckpt"
    assert f"{trained}/generated/" in ran("sample", "num=2", f"checkpoint={trained}")
    assert command("train", *TINY, f"init_from={trained}", "trainer.max_steps=1", "hydra.run.dir=second")[0] == 0
    assert yaml.safe_load((tmp_path / "second/config.yaml").read_text())["init_from"] == str(trained), "as typed"
    url = trained.resolve().as_uri()
    assert command("train", *TINY, f"init_from={url}", "trainer.max_steps=1", "hydra.run.dir=third")[0] == 0
    assert url in (tmp_path / "third/run.yaml").read_text(), "the folder of the download is gone"
    assert str(last) in (tmp_path / "second/run.yaml").read_text()


def test_help_names_every_command(command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert all(f"lit-gans {name}" in out for name in names())


@pytest.mark.runs
def test_training_without_any_argument_is_the_experiment_of_digits_and_prints_its_configuration(ran):
    assert yaml.safe_load(ran("train", "--cfg", "job"))["model"]["generator_width"] == 32, "experiment=dcgan_digits"
    assert yaml.safe_load(ran("train", "--cfg", "job", "data=digits"))["model"]["generator_width"] is None
