import pytest
import torch
from PIL import Image

from lit_gans.callbacks import Samples
from lit_gans.errors import RefusedInput


def test_grids_of_the_same_latents_and_a_film(tiny_gan, random_images, fit, tmp_path):
    module = tiny_gan()
    fit(module, random_images(), max_steps=5, callbacks=[Samples(every_n_steps=2, num=4)])
    folder = tmp_path / "samples"
    names = [f"{step:06d}.png" for step in (0, 2, 4, 5)]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "training.gif"]
    with Image.open(folder / "training.gif") as film:
        assert film.n_frames == 4
    with Image.open(folder / "000005.png") as grid:
        assert grid.size == (2 * 18 + 2, 2 * 18 + 2)
        first = torch.tensor(list(grid.convert("L").crop((2, 2, 18, 18)).tobytes())).reshape(16, 16)
    expected = module.sample(4, seed=0)[0, 0].mul(255).add(0.5).clamp(0, 255).long()
    assert (first - expected).abs().max() <= 1


def test_refusals():
    with pytest.raises(RefusedInput, match="num=0"):
        Samples(num=0)
