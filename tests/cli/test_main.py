"""The command line: refusals with the right key, and the commands on a tiny run."""

import json
from pathlib import Path

import pytest
import yaml

from lit_gans.cli import main as cli
from lit_gans.cli.commands import commands
from tests.commands import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("trained")
    assert cli.run(["train", *TINY, "trainer.max_steps=3", f"hydra.run.dir={folder}"]) == 0
    return folder


def test_evaluate_says_what_the_checkpoint_does_not(ran, refused, trained):
    last = f"checkpoint={trained}/checkpoints/last.ckpt"
    few = ["metrics=digits", "metrics.num_samples=40"]
    assert "metrics=digits" in refused("evaluate", last), "it was trained without metrics"
    assert "add data.image_size=16" in refused("evaluate", last, "data=digits", *few)
    ran("evaluate", last, *few, "output=a.json")
    values = json.loads(Path("a.json").read_text())
    assert values["metric/fid_digits"] > 0
    assert values["weights"] == "ema"


def test_the_folder_of_a_run_is_its_checkpoint_in_every_command(command, refused, trained, tmp_path):
    last = trained / "checkpoints/last.ckpt"
    for arguments in (["sample", "num=2"], ["interpolate", "num=1", "steps=2"]):
        code, out, err = command(*arguments, f"checkpoint={trained}")
        assert (code, err.splitlines()[0]) == (0, f"checkpoint  {last}"), err
        assert f"{trained}/generated/" in out
    small = ["metrics=digits", "metrics.num_samples=40"]
    code, out, err = command("evaluate", f"checkpoint={trained}", *small)
    assert (code, f"checkpoint  {last}" in err) == (0, True), err
    assert (trained / "checkpoints/evaluation_last.json").is_file()
    code, out, err = command("train", *TINY, f"init_from={trained}", "trainer.max_steps=1", "hydra.run.dir=second")
    assert (code, f"checkpoint  {last}" in err) == (0, True), err
    assert yaml.safe_load((tmp_path / "second/config.yaml").read_text())["init_from"] == str(last)
    assert "is neither the folder of a run" in refused("sample", f"checkpoint={trained / 'samples'}")


def test_help_names_every_command(command):
    for arguments in (["--help"], ["-h"], ["help"]):
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        assert all(f"lit-gans {name}" in out for name in commands())


def test_training_without_any_argument_is_the_experiment_of_digits_and_prints_its_configuration(command):
    code, out, err = command("train", "--cfg", "job")
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)["model"]["generator_width"] == 32, "experiment=dcgan_digits is the default"
    code, out, err = command("train", "--cfg", "job", "data=digits")
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)["model"]["generator_width"] is None
