"""Paths arrive as a shell passes them, in every command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from lit_gans import load
from tests.commands import TINY

ODD = "photos été, b=1 (copy)"


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A folder of pictures and everything else, with an odd name."""
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    pictures = tmp_path / ODD
    pictures.mkdir()
    for index in range(40):
        Image.new("RGB", (16, 16), (6 * index, 0, 0)).save(pictures / f"{index}.png")
    return pictures


@pytest.mark.runs
def test_every_command_takes_a_path_as_it_is_typed(ran, odd):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", f"data.root={odd}", "data.image_size=16"]
    steps = ["trainer.max_steps=1", "data.batch_size=4", "metrics=none"]
    ran("pack", *images)
    ran("train", *tiny, *images, *steps, f"hydra.run.dir=runs, {ODD}/run")
    last = f"runs, {ODD}/run/checkpoints/last.ckpt"
    ran("train", *tiny, *images, *steps, f"resume={last}", "trainer.max_steps=2")
    assert torch.load(last, weights_only=True)["global_step"] == 2
    ran("train", *tiny, *images, *steps, f"init_from={last}", f"hydra.run.dir=runs, {ODD}/second")
    ran("sample", f"checkpoint={last}", "num=1", f"output=runs, {ODD}/out, 1")
    assert Path(f"runs, {ODD}/out, 1/grid.png").is_file()
    ran("interpolate", f"checkpoint={last}", "num=1", "steps=2", f"output=runs, {ODD}/out, 1")
    digits = ["metrics=digits", "metrics.num_samples=20", "image_size=16"]
    ran("evaluate", f"fake={ODD}", f"real={ODD}", *digits, f"output=runs, {ODD}/a=b.json")
    assert json.loads(Path(f"runs, {ODD}/a=b.json").read_text())["fake"] == ODD


@pytest.mark.runs
def test_a_sweep_takes_an_odd_path_and_commas_of_other_keys(ran, odd):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", f"data.root={odd}", "data.image_size=16", "data.batch_size=4", "metrics=none"]
    ran("train", "-m", *tiny, *images, "trainer.max_steps=1", "model.latent_dim=4,5")
    assert sorted(path.parent.name for path in Path().glob("outputs/sweeps/version_0/*/config.yaml")) == ["0", "1"]


@pytest.mark.runs
def test_runs_on_other_folders_are_not_resumed(ran, odd):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", "data.image_size=16", "data.batch_size=4", "metrics=none", "trainer.max_steps=1"]
    other = odd.with_name("other")
    odd.rename(other)
    ran("train", *tiny, *images, f"data.root={other}")
    other.rename(odd)
    out = ran("train", *tiny, *images, f"data.root={odd}", "resume=auto")
    assert "Nothing was trained" not in out
    assert len(list(Path("outputs").iterdir())) == 2
    out = ran("train", *tiny, *images, f"data.root={ODD}", "resume=auto")
    assert "Nothing was trained" in out, "its own run, however the path is typed"


BYTES = os.fsdecode(b"photos\xff")  # no UTF-8
SHORT = ["data.image_size=16", "data.batch_size=4", "metrics=none", "trainer.max_steps=1"]


@pytest.fixture
def not_utf8(tmp_path, monkeypatch):
    """A folder of two classes, whose names and files are no UTF-8 or have emoji."""
    monkeypatch.setenv("LIT_GANS_CACHE", str(tmp_path / "cache"))
    for name in (os.fsdecode(b"class\xfe"), "é😀"):
        (tmp_path / BYTES / name).mkdir(parents=True)
        for index in range(16):
            picture = os.fsdecode(b"\xff%d.png" % index)
            Image.new("RGB", (16, 16), (15 * index, 0, 0)).save(tmp_path / BYTES / name / picture)
    return tmp_path / BYTES


@pytest.mark.runs
def test_every_command_takes_names_that_are_no_utf_8(ran, refused, not_utf8):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", f"data.root={BYTES}", "model.num_classes=2"]
    ran("pack", *images[:2], "data.image_size=16")
    ran("train", *tiny, *images, *SHORT)
    assert len([*Path("outputs").glob("dcgan_folder_photos-*/version_0")]) == 1
    own = f"{BYTES}s/run"
    ran("train", *tiny, *images, *SHORT, f"hydra.run.dir={own}")
    assert load(own).num_classes == 2
    ran("train", *tiny, *images, *SHORT, f"resume={own}", "trainer.max_steps=2")
    ran("train", *tiny, *images, *SHORT, f"init_from={own}", f"hydra.run.dir={BYTES}s/second")
    ran("sample", f"checkpoint={own}", "num=2", f"output={BYTES}out")
    ran("report", f"run={own}", "num=2")
    assert "photos" in Path(own, "report.html").read_text(encoding="utf-8")
    digits = ["metrics=digits", "metrics.num_samples=20", "metrics.batch_size=10"]
    ran("evaluate", f"checkpoint={own}", *digits)
    ran("train", "-m", *tiny, *images, *SHORT, "seed=0,1")
    assert "TensorBoard cannot write to the folder" in refused(
        "train", *tiny, *images, *SHORT, "logger=tensorboard", f"hydra.run.dir={BYTES}s/other"
    )


@pytest.mark.runs
def test_an_ascii_locale_trains_and_says_everything(not_utf8, tmp_path):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", f"data.root={BYTES}", "model.num_classes=2", *SHORT]
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LIT_GANS_CACHE", "OMP_NUM_THREADS") if name in os.environ
    }
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "lit_gans", "train", "-m", "seed=0,1", *tiny, *images]
    done = subprocess.run(command, cwd=tmp_path, env=kept | ascii_only, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"\\xb1 standard deviation over the seeds" in done.stdout
    assert "±" in next(tmp_path.glob("outputs/sweeps/version_0/table.md")).read_text(encoding="utf-8")
