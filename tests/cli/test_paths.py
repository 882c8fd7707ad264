"""Paths arrive as a shell passes them, in every command."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

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


def test_a_sweep_takes_an_odd_path_and_commas_of_other_keys(ran, odd):
    tiny = [item for item in TINY if not item.startswith(("data", "metrics"))]
    images = ["data=folder", f"data.root={odd}", "data.image_size=16", "data.batch_size=4", "metrics=none"]
    ran("train", "-m", *tiny, *images, "trainer.max_steps=1", "model.latent_dim=4,5")
    assert sorted(path.parent.name for path in Path().glob("outputs/sweeps/version_0/*/config.yaml")) == ["0", "1"]


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
