import math

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import CMMD
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores import cmmd


def features(num, seed, shift=0.0):
    return torch.randn(num, 16, generator=torch.Generator().manual_seed(seed)) + shift


def score(real, fake, **settings):
    one = CMMD(**settings)
    for rows, is_real in ((real, True), (fake, False)):
        one.update(Features(rows, torch.empty(len(rows), 0)), is_real)
    return one.compute()


def plain(real, fake, sigma):
    """The biased estimate of Gretton et al. (2012), equation 5, as sums over pairs."""
    real, fake = ([row / row.norm() for row in rows.double()] for rows in (real, fake))

    def mean(ones, others):
        kernels = [math.exp(-((x - y) ** 2).sum() / (2 * sigma**2)) for x in ones for y in others]
        return sum(kernels) / len(kernels)

    return 1000 * (mean(real, real) + mean(fake, fake) - 2 * mean(real, fake))


@pytest.mark.parametrize("sigma", [10.0, 0.5])
@pytest.mark.parametrize("rows", [1024, 7])
def test_is_the_mean_over_all_pairs_in_blocks_of_rows(monkeypatch, sigma, rows):
    monkeypatch.setattr(cmmd, "_ROWS", rows)
    real, fake = features(23, 0), features(17, 1, 0.5)
    assert score(real, fake, sigma=sigma).item() == pytest.approx(plain(real, fake, sigma), rel=1e-9)


def test_two_points_by_hand():
    """Of unit length, the features are a right angle apart: 1 + 1 - 2 exp(-2 / 200)."""
    value = score(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.1]]))
    assert value.item() == pytest.approx(2000 * (1 - math.exp(-0.01)), rel=1e-12)


def test_equal_images_are_zero_and_the_length_of_features_does_not_matter():
    real = features(40, 0)
    assert abs(score(real, real.flip(0) * 5)) < 1e-9


def test_refusals():
    with pytest.raises(RefusedInput, match="sigma="):
        CMMD(sigma=0.0)
    with pytest.raises(RefusedInput, match="CMMD: there are no images: use at least 1"):
        score(features(0, 0), features(3, 1))
