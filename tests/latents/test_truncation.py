import pytest
import torch
from scipy import stats

from lit_gans.common.errors import RefusedInput
from lit_gans.latents.truncation import truncated, uses_length

LATENTS = torch.randn(200, 50, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bound", [0.3, 1.0, 2.5])
def test_numbers_have_the_truncated_normal_distribution_in_their_order(bound):
    found = truncated(LATENTS, bound)
    assert found.dtype == LATENTS.dtype
    assert found.abs().max() <= bound
    assert stats.kstest(found.flatten().numpy(), stats.truncnorm(-bound, bound).cdf).pvalue > 0.01
    assert (found.flatten()[LATENTS.flatten().argsort()].diff() >= 0).all()


def test_no_bound_and_a_bound_beyond_all_numbers_change_nothing():
    assert truncated(LATENTS, None) is LATENTS
    torch.testing.assert_close(truncated(LATENTS, 7.0), LATENTS)


def test_a_number_whose_rank_rounds_to_1_becomes_the_bound():
    assert truncated(torch.tensor([[40.0, -40.0]]), 9.0).tolist() == [[9.0, -9.0]]


def test_other_bounds_are_refused():
    with pytest.raises(RefusedInput, match=r"truncation=-1\.0 must be greater than 0"):
        truncated(LATENTS, -1.0)


@pytest.mark.parametrize(("name", "expected"), [("dcgan", True), ("sngan", True), ("projected_gan", False)])
def test_generators_that_normalize_latents_do_not_use_their_length(tiny_gan, name, expected):
    assert uses_length(tiny_gan(name)) == expected
