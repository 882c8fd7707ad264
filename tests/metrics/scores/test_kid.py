import numpy as np
import pytest
import torch
from torch_fidelity.metric_kid import kid_features_to_metric

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.kid import KID, kernel_distances, squared_mmd
from lit_gans.metrics.statistics import Summary


def features(num, seed, shift=0.0):
    return torch.randn(num, 16, generator=torch.Generator().manual_seed(seed)) + shift


def summary(rows):
    return Summary(len(rows), rows.double().mean(0), rows.double().T.cov(), rows)


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


def test_three_points_by_hand():
    real, fake = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[0.0], [1.0]]).double()
    # k(1, 2) = 27; k(0, 1) = 1; across k(1, 0) = 1, k(1, 1) = 8, k(2, 0) = 1, k(2, 1) = 27
    assert squared_mmd(real, fake) == pytest.approx(27 + 1 - 2 * (1 + 8 + 1 + 27) / 4)


def test_equal_distributions_are_zero_within_the_spread_and_the_seed_decides():
    real, fake = summary(features(600, 2)), summary(features(600, 3))
    score = KID(subsets=20, subset_size=100)
    before = torch.get_rng_state()
    values = score.compute(real, fake, seed=0)
    assert abs(values["kid"]) < values["kid_spread"]
    assert values == score.compute(real, fake, seed=0)
    assert values != score.compute(real, fake, seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_refusals():
    assert "900 images are too few for subset_size=1000" in KID().too_few(5000, 900)
    assert "900 images" in KID().too_few(900, 5000)
    assert KID().too_few(1000, 1000) is None
    with pytest.raises(RefusedInput, match="subset_size=1"):
        KID(subset_size=1)
