import numpy as np
import pytest
import torch
from torch_fidelity.metric_kid import kid_features_to_metric

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.kid import KernelInceptionDistance, kernel_distances


def features(num, seed, shift=0.0):
    return torch.randn(num, 16, generator=torch.Generator().manual_seed(seed)) + shift


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_is_torch_fidelity_s_on_identical_index_sets(shift):
    real, fake = features(70, 0), features(90, 1, shift)
    drawn = np.random.RandomState(7)
    sets = [[drawn.choice(len(rows), 40, replace=False) for rows in (fake, real)] for _ in range(6)]
    found = kernel_distances(real, fake, [(torch.tensor(two), torch.tensor(one)) for one, two in sets])
    settings = {"kid_subsets": 6, "kid_subset_size": 40, "rng_seed": 7, "verbose": False}
    expected = kid_features_to_metric(fake.double(), real.double(), **settings)
    assert found.mean().item() == pytest.approx(expected["kernel_inception_distance_mean"], rel=1e-6)
    assert found.std(correction=0).item() == pytest.approx(expected["kernel_inception_distance_std"], rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # k(x, y) = (xy + 1)^3: k(1, 2) = 27; k(0, 1) = 1; across k(1, 0) = 1, k(1, 1) = 8, k(2, 0) = 1, k(2, 1) = 27
        ({}, 27 + 1 - 2 * (1 + 8 + 1 + 27) / 4),
        # k(x, y) = (2xy + 3)^2: k(1, 2) = 49; k(0, 1) = 9; across k(1, 0) = k(2, 0) = 9, k(1, 1) = 25, k(2, 1) = 49
        ({"degree": 2, "gamma": 2.0, "coef": 3.0}, 49 + 9 - 2 * (9 + 25 + 9 + 49) / 4),
    ],
)
def test_three_points_by_hand(kernel, expected):
    real, fake = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[0.0], [1.0]]).double()
    everything = [(torch.arange(2), torch.arange(2))]
    assert kernel_distances(real, fake, everything, **kernel).item() == pytest.approx(expected)


def test_equal_distributions_are_zero_within_the_spread_and_the_seed_decides():
    def compute(seed):
        score = KernelInceptionDistance(subsets=20, subset_size=100, seed=seed)
        for number, real in ((2, True), (3, False)):
            score.update(Features(features(600, number), torch.empty(600, 0)), real)
        return score.compute()

    before = torch.get_rng_state()
    mean, spread = compute(seed=0)
    assert abs(mean) < spread
    assert compute(seed=0) == (mean, spread)
    assert compute(seed=1) != (mean, spread)
    assert torch.equal(before, torch.get_rng_state())


def test_refusals():
    assert "900 images are too few for subset_size=1000" in KernelInceptionDistance().too_few(5000, 900)
    assert "900 images" in KernelInceptionDistance().too_few(900, 5000)
    assert KernelInceptionDistance().too_few(1000, 1000) is None
    for arguments in ({"subset_size": 1}, {"subsets": 0}, {"degree": 0}, {"gamma": 0.0}, {"coef": -1.0}):
        with pytest.raises(RefusedInput, match=f"{next(iter(arguments))}="):
            KernelInceptionDistance(**arguments)
