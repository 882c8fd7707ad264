"""The command line: refusals with the right key, and the commands on a tiny run."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from lit_gans.cli import main as cli
from lit_gans.cli.commands import commands
from tests.commands import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("trained")
    assert cli.run(["train", *TINY, "trainer.max_steps=3", f"hydra.run.dir={folder}"]) == 0
    return folder


def test_damaged_and_foreign_checkpoints_are_refused(command, tmp_path, trained):
    damaged = tmp_path / "damaged.ckpt"
    damaged.write_bytes((trained / "checkpoints/last.ckpt").read_bytes()[:1000])
    for argument in (f"resume={damaged}", f"init_from={damaged}"):
        code, _, err = command("train", *TINY, argument)
        assert (code, "cannot be read as a checkpoint" in err) == (2, True)
    torch.save({"weights": 1}, tmp_path / "foreign.ckpt")
    code, _, err = command("sample", f"checkpoint={tmp_path / 'foreign.ckpt'}")
    assert (code, "is not a Lightning checkpoint" in err) == (2, True)
    last = trained / "checkpoints/last.ckpt"
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    for argument in (f"resume={last}", f"init_from={last}"):
        code, _, err = command("train", *TINY, "model.generator_width=8", argument)
        assert code == 2
        assert "another architecture" in err
        assert "(DCGAN; generator_width=4 there, 8 here)" in err
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}, "nothing is lost"


def test_sample_interpolate_and_evaluate(command, trained):
    last = trained / "checkpoints/last.ckpt"
    code, _, err = command("sample", f"checkpoint={last}", "num=5", "output=pictures")
    assert code == 0, err
    assert sorted(path.name for path in Path("pictures").iterdir()) == [*(f"{i:05d}.png" for i in range(5)), "grid.png"]
    with Image.open("pictures/00000.png") as picture:
        assert picture.size == (16, 16)
    code, _, err = command("interpolate", f"checkpoint={last}", "num=2", "steps=3")
    assert code == 0, err
    assert (trained / "generated/interpolation.png").is_file()
    code, _, err = command("evaluate", f"checkpoint={last}")
    assert (code, "metrics=digits" in err) == (2, True), "it was trained without metrics"
    code, _, err = command(
        "evaluate", f"checkpoint={last}", "metrics=digits", "metrics.num_samples=40", "output=a.json"
    )
    assert code == 0, err
    values = json.loads(Path("a.json").read_text())
    assert values["metric/fid_digits"] > 0
    assert values["weights"] == "ema"
    code, _, err = command("evaluate", f"checkpoint={last}", "metrics=digits", "data=digits", "metrics.num_samples=40")
    assert (code, "add data.image_size=16" in err) == (2, True)


def test_the_folder_of_a_run_is_its_checkpoint_in_every_command(command, trained, tmp_path):
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
    code, _, err = command("sample", f"checkpoint={trained / 'samples'}")
    assert (code, f"that of this run is {last}." in err) == (2, True), err


def test_a_garbage_file_is_refused_without_advising_to_execute_it(command, tmp_path):
    (tmp_path / "garbage.ckpt").write_bytes(b"garbage")
    code, _, err = command("sample", "checkpoint=garbage.ckpt")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "garbage.ckpt cannot be read as a checkpoint: torch did not write it, or it is truncated." in err
    assert "weights_only" not in err


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


def test_a_folder_whose_name_has_an_equals_sign_is_no_setting(command, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "lr=0.1")
    code, _, err = command("sample", "lr=0.1")
    assert (code, "Could not override 'lr'" in err) == (2, True)
    code, _, err = command("sample", "checkpoint=lr=0.1", "num=2")
    assert code == 0, err
    assert (tmp_path / "lr=0.1/generated/grid.png").is_file()
