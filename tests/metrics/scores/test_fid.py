import numpy as np
import pytest
import scipy.linalg
import torch
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torchmetrics.image.fid import _compute_fid

from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.fid import FrechetInceptionDistance, Gaussian, frechet_distance


def features(num, width, seed, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator)
    return scale * torch.randn(num, width, generator=generator) @ mixing / width**0.5 + shift


def summary(rows, parts=3):
    fid = FrechetInceptionDistance()
    for part in rows.tensor_split(parts):
        fid.update(Features(part, part[:, :0]), real=True)
    return Gaussian.of_sums(int(fid.real_features_num_samples), fid.real_features_sum, fid.real_features_cov_sum)


def plain_fid(real, fake):
    """Heusel et al. 2017, equation 6, on the moments that numpy computes."""
    real, fake = (rows.double().numpy() for rows in (real, fake))
    covariances = [np.cov(rows, rowvar=False) for rows in (real, fake)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    return ((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)


def test_commuting_gaussians_have_the_closed_form():
    # diagonal covariances: |m - n|^2 + sum (sqrt(a) - sqrt(b))^2 = 9 + 16 + (1 - 2)^2 + (3 - 5)^2
    one = Gaussian(torch.tensor([0.0, 1.0]).double(), torch.diag(torch.tensor([1.0, 9.0])).double())
    two = Gaussian(torch.tensor([3.0, 5.0]).double(), torch.diag(torch.tensor([4.0, 25.0])).double())
    assert frechet_distance(one, two) == pytest.approx(30, rel=1e-12)


def test_a_rotation_of_both_changes_nothing_and_of_one_is_the_closed_form_in_two_dimensions():
    turn = torch.linalg.qr(torch.randn(2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    one, two = torch.diag(torch.tensor([1.0, 9.0])).double(), torch.diag(torch.tensor([4.0, 25.0])).double()
    mean = torch.zeros(2).double()
    both = frechet_distance(Gaussian(mean, turn @ one @ turn.T), Gaussian(mean, turn @ two @ turn.T))
    assert both == pytest.approx(5, rel=1e-12)
    turned = turn @ two @ turn.T
    # the trace of the root of a 2x2 matrix is sqrt(trace + 2 sqrt(determinant))
    product = one @ turned
    root = (product.trace() + 2 * product.det().sqrt()).sqrt()
    expected = (one.trace() + turned.trace() - 2 * root).item()
    assert frechet_distance(Gaussian(mean, one), Gaussian(mean, turned)) == pytest.approx(expected, rel=1e-12)


def test_equal_covariances_leave_the_squared_distance_of_the_means():
    rows = features(200, 8, 0)
    assert frechet_distance(summary(rows), summary(rows + 0.5)) == pytest.approx(8 * 0.25, rel=1e-5)
    assert frechet_distance(summary(rows), summary(rows)) == pytest.approx(0, abs=1e-9)


def test_moments_are_numpy_s_whatever_the_batches():
    rows = features(101, 6, 1, shift=30.0)
    for found in (summary(rows, 1), summary(rows, 7), summary(rows, 101), Gaussian.of_rows(rows)):
        np.testing.assert_allclose(found.mean, rows.double().numpy().mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.covariance, np.cov(rows.double().numpy(), rowvar=False), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("num", "width"), [(500, 64), (60, 96)])  # the second without full rank
def test_is_torch_fidelity_s_torchmetrics_and_the_plain_formula(num, width):
    real, fake = features(num, width, 2), features(num, width, 3, scale=1.3, shift=0.2)
    found = frechet_distance(summary(real), summary(fake))
    theirs = [fid_features_to_statistics(rows.double()) for rows in (real, fake)]
    expected = fid_statistics_to_metric(*theirs, verbose=False)["frechet_inception_distance"]
    assert found == pytest.approx(expected, rel=1e-6)
    moments = [torch.as_tensor(statistics[name]) for statistics in theirs for name in ("mu", "sigma")]
    assert found == pytest.approx(_compute_fid(*moments).item(), rel=1e-6)
    if num > width:
        assert found == pytest.approx(plain_fid(real, fake), rel=1e-6)
