"""The scripts in docs/examples run with few steps, with and without the adversary."""

import re
import runpy

import pytest
import torch
from PIL import Image

from tests.docs.blocks import ROOT

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.py"))
SMALLER = {name: ["--faces=200"] for name in ("super_resolution", "autoencoder")}
GUIDE = (ROOT / "docs/guides/adversary.md").read_text()


def run(path, output, monkeypatch, capsys, *options):
    """Returns the scores that an example prints."""
    monkeypatch.setattr("sys.argv", [path.name, f"--output={output}", *options])
    runpy.run_path(str(path), run_name="__main__")
    return dict(re.findall(r"(\w+) (-?\d+\.\d+)", capsys.readouterr().out))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_with_and_without_the_adversary(path, tmp_path, monkeypatch, capsys):
    seen = {}
    for name, options in {"with": ["--weight=10"], "again": ["--weight=10"], "without": ["--weight=0"]}.items():
        output = tmp_path / f"{name}.png"
        scores = run(path, output, monkeypatch, capsys, "--steps=3", *SMALLER.get(path.stem, ()), *options)
        assert len(scores) == 2
        with Image.open(output) as image:
            assert len(image.convert("L").getcolors()) > 2
        seen[name] = scores
    assert seen["with"] == seen["again"], "the seed decides all"
    assert seen["with"] != seen["without"], "the adversary changes nothing"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_guide_shows_an_example(path):
    assert f"docs/examples/{path.name})" in GUIDE


def test_gradient_magnitudes_of_a_ramp_are_its_slope():
    magnitudes = runpy.run_path(str(ROOT / "docs/examples/volumes.py"))["gradient_magnitudes"]
    axes = torch.meshgrid(*[torch.arange(5.0)] * 3, indexing="ij")
    ramp = (2 * axes[0] + 3 * axes[1] + 6 * axes[2])[None, None]
    torch.testing.assert_close(magnitudes(ramp), torch.full((125,), 7.0))


def test_the_score_of_blurred_volumes_is_worse_although_their_mean_is_right():
    example = runpy.run_path(str(ROOT / "docs/examples/volumes.py"))
    torch.manual_seed(0)
    volumes, others = example["tissues"](2), example["tissues"](2)
    assert set(volumes.unique().tolist()) == {-1.0, 1.0}
    blurred = torch.nn.functional.avg_pool3d(volumes, 3, 1, 1, count_include_pad=False)
    assert example["scores"](volumes, volumes)["gradients"] == 0
    of_others, of_blurred = (example["scores"](x, volumes) for x in (others, blurred))
    assert of_blurred["gradients"] > 3 * of_others["gradients"]
    assert of_blurred["psnr"] > of_others["psnr"]


def test_a_voice_is_periodic_and_noise_is_not():
    example = runpy.run_path(str(ROOT / "docs/examples/vocoder.py"))
    torch.manual_seed(0)
    waves, cycles, voiced = example["voices"](4)
    assert example["periodicity"](waves, cycles, voiced).mean() > 0.9
    assert example["periodicity"](torch.randn_like(waves), cycles, voiced).mean().abs() < 0.1
    assert example["periodicity"](waves, 1.13 * cycles, voiced).mean() < 0.5, "of another pitch"
    assert example["spectral_distance"](waves, waves) == 0


def test_enlarged_faces_are_worse_than_true_ones_by_both_scores():
    example = runpy.run_path(str(ROOT / "docs/examples/super_resolution.py"))
    faces = example["Avatars"](num_images=40, image_size=64).packed.images / 127.5 - 1
    small = torch.nn.functional.avg_pool2d(faces, 4)
    true, blurred = (example["scores"](images, faces) for images in (faces, example["enlarged"](small)))
    assert true["fid"] == pytest.approx(0, abs=1e-3)
    assert true["psnr"] == float("inf")
    assert blurred["fid"] > 100
    assert blurred["psnr"] < 25
    assert example["Enlarger"]()(small).shape == faces.shape


def test_the_autoencoder_compresses_to_128_numbers():
    network = runpy.run_path(str(ROOT / "docs/examples/autoencoder.py"))["Autoencoder"]()
    images = torch.zeros(2, 3, 32, 32)
    assert network.encoder(images).shape == (2, 8, 4, 4)
    assert network(images).shape == images.shape
