"""Colors and cutout of both adaptive pipelines, the rule of their probability, and FID."""

import numpy as np
import pytest
import torch

from lit_gans.metrics.scores.fid import Gaussian, frechet_distance
from lit_gans.training.ada_operations import _color, _cutout, _normal
from lit_gans.training.augmentation import Adaptive
from tests.references.conftest import checkout

STYLEGAN2_ADA, R3GAN, MIMICRY = "NVlabs+stylegan2-ada-pytorch", "brownvc+R3GAN", "kwotsin+mimicry"
COLORS = ("brightness", "contrast", "lumaflip", "hue", "saturation")


@pytest.mark.parametrize(("code", "share", "cutout"), [(STYLEGAN2_ADA, 1.0, 0.0), (R3GAN, 0.5, 1.0)])
def test_colors_and_cutout(same, monkeypatch, code, share, cutout):
    images, numbers, p = torch.rand(40, 3, 8, 10) * 2 - 1, torch.rand(40, 13), 0.8
    with checkout(code) as load:
        pipe = load("training.augment").AugmentPipe(**dict.fromkeys(COLORS, share), cutout=cutout)
        pipe.p.copy_(torch.tensor(p))
        columns = iter(numbers.unbind(1))

        def two(shape):
            return torch.stack([next(columns), next(columns)][::-1], 1).view(shape)  # theirs are x and y

        def uniform(shape, **_):
            return two(shape) if list(shape[1:2]) == [2] else next(columns).view(shape)

        monkeypatch.setattr(torch, "rand", uniform)
        monkeypatch.setattr(torch, "randn", lambda shape, **_: _normal(next(columns)).view(shape))
        expected = pipe(images)
        monkeypatch.undo()
    columns = iter(numbers.unbind(1))
    found = _color(images, columns, p * share)
    found = _cutout(found, columns, p * cutout) if cutout else found
    same("Adaptive augmentation: " + ("r3gan" if cutout else "bgc") + ", colors", found, expected)


def test_the_rule_of_the_probability(same):
    """Of training_loop.py, in its own words: sign(mean sign - target) * (batch * interval) / (kimg * 1000)."""
    adaptive, state, theirs = Adaptive(target=0.6, over=500_000), torch.zeros(3), 0.0
    for signs in torch.rand(4000) * 2 - 0.3:
        state = adaptive.adapted(torch.stack([state[0], signs * 128, torch.tensor(128.0)]), 128)
        theirs = max(0.0, min(1.0, theirs + np.sign(signs.item() - 0.6) * 128 / 500_000))
    same("Adaptive augmentation: probability", state[0], torch.tensor(theirs))
    assert 0 < theirs < 1


@pytest.mark.filterwarnings("ignore:The `disp` argument:DeprecationWarning")
def test_fid(same):
    features = torch.randn(2, 500, 6).matmul(torch.randn(6, 6)) + torch.randn(2, 1, 6)
    packages = {"torch_mimicry": {}, "torch_mimicry__metrics": {}, "torch_mimicry__metrics__fid": {}}
    with checkout(MIMICRY, **packages, torch_mimicry__metrics__inception_model={"inception_utils": None}) as load:
        moments = [(each.mean(0).numpy(), np.cov(each.numpy(), rowvar=False)) for each in features]
        module = load("torch_mimicry.metrics.fid.fid_utils")
        expected = module.calculate_frechet_distance(*moments[0], *moments[1])
    found = frechet_distance(*map(Gaussian.of_rows, features))
    same("FID", torch.tensor(found), torch.tensor(float(expected)))
