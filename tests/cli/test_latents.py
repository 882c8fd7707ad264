"""`lit-gans directions` and `project` on a checkpoint, as their users call them."""

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans import load
from tests.commands import TINY


@pytest.fixture
def last(saved):
    """A checkpoint of a GAN with classes."""
    return saved("gan", num_classes=10, generator_width=16)


def test_directions_writes_rows_around_the_latent_and_the_vectors(ran, last, tmp_path):
    ran("directions", f"checkpoint={last}", "num=2", "steps=3", "reach=2", "seed=4")
    vectors = torch.load(tmp_path / "run/generated/directions.pt", weights_only=True)
    assert vectors.shape == (2, 6)
    module = load(last)
    latents = torch.cat([module.latents(1, 4) + amount * vectors[1] for amount in (-2, 0, 2)])
    expected = module.decode(latents, labels=torch.zeros(3, dtype=torch.long))[:, 0].mul(255)
    with Image.open(tmp_path / "run/generated/directions.png") as image:
        pixels = torch.from_numpy(np.asarray(image.convert("L")).copy()).float()
    for column in range(3):
        found = pixels[20:36, 2 + 18 * column : 18 + 18 * column]
        assert (found - expected[column]).abs().max() <= 1


def frames_of(path):
    with Image.open(path) as video:
        return [video.seek(index) or np.asarray(video.convert("L")) for index in range(video.n_frames)]


def test_a_walk_as_a_video_goes_there_and_back(ran, last, tmp_path):
    ran("interpolate", f"checkpoint={last}", "num=3", "steps=4", "output=pictures")
    ran("interpolate", f"checkpoint={last}", "num=3", "steps=4", "output=new/walk.gif", "fps=10")
    frames = frames_of(tmp_path / "new/walk.gif")
    assert len(frames) == 6, "the ends are not repeated"
    with Image.open(tmp_path / "pictures/interpolation.png") as image:
        rows = np.asarray(image.convert("L"))
    for index, column in enumerate((0, 1, 2, 3, 2, 1)):
        small = frames[index][3::7, 3::7]  # 38 pixels, enlarged seven times
        for row in range(3):
            top, left = (2 + 18 * (row // 2), 2 + 18 * (row % 2))
            expected = rows[2 + 18 * row : 18 + 18 * row, 2 + 18 * column : 18 + 18 * column]
            assert np.array_equal(small[top : top + 16, left : left + 16], expected)


def test_directions_as_a_video_and_their_vectors_beside_it(ran, last, tmp_path):
    assert "new/all.mp4, 4 frames" in ran("directions", f"checkpoint={last}", "num=2", "steps=3", "output=new/all.mp4")
    assert torch.load(tmp_path / "new/all.pt", weights_only=True).shape == (2, 6)
    assert not (tmp_path / "run/generated").exists()


def test_project_writes_pairs_and_the_latents(ran, last, tmp_path):
    module = load(last)
    images = module.decode(module.latents(2, 7), labels=torch.tensor([3, 3]))
    (tmp_path / "pictures").mkdir()
    for name, image in zip("ab", images, strict=True):
        Image.fromarray(image[0].mul(255).round().byte().numpy()).save(tmp_path / f"pictures/{name}.png")
    out = ran("project", f"checkpoint={last}", "input=pictures", "label=3", "steps=100", "prior=0")
    assert "2 images, mean distance 0.0" in out
    latents = torch.load(tmp_path / "run/generated/projected.pt", weights_only=True)
    made = module.decode(latents, labels=torch.tensor([3, 3]))
    assert (made - images).abs().mean() < 0.01, "of this class"
    with Image.open(tmp_path / "run/generated/projected.png") as grid:
        assert grid.size == (2 + 2 * 18, 2 + 2 * 18)


def test_project_reads_files_as_the_training_did(ran, tmp_path):
    """Arrays of two channels whose values are those of `data.value_range`."""
    (tmp_path / "arrays").mkdir()
    for index in range(8):
        np.save(tmp_path / f"arrays/{index}.npy", np.full((16, 16, 2), index / 4 - 1, np.float32))
    sizes = ("data.image_size=16", "data.channels=2", "data.value_range=[-1,1]", "data.dtype=float32")
    ran(
        *("train", *TINY, "data=folder", "data.root=arrays", "data.batch_size=8", *sizes),
        *("trainer.max_steps=1", "metrics=none", "hydra.run.dir=floats"),
    )
    ran("project", "checkpoint=floats", "input=arrays/4.npy", "steps=1", "output=found")
    with Image.open(tmp_path / "found/projected.png") as grid:  # gray, a channel beside the other
        assert np.asarray(grid.convert("L"))[2 + 8, 2 + 8] in (127, 128), "the 0 of [-1, 1] is gray"
