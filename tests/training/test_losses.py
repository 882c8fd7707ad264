import math

import pytest
import torch

from lit_gans.training.losses import (
    critic_generator,
    hinge_discriminator,
    log_softplus,
    logistic_discriminator,
    non_saturating_generator,
    saturating_generator,
    wasserstein_critic,
)

REAL, FAKE = torch.tensor([0.3, -1.2, 4.0]), torch.tensor([-0.7, 2.5, 0.1])


def plain_discriminator(real, fake, smoothing):
    """Cross entropy against the targets 1 - smoothing and 0, in float64, as the paper writes it."""
    d_real, d_fake = 1 / (1 + torch.exp(-real.double())), 1 / (1 + torch.exp(-fake.double()))
    on_real = -((1 - smoothing) * d_real.log() + smoothing * (1 - d_real).log()).mean()
    return on_real - (1 - d_fake).log().mean()


def assert_same_with_gradients(ours, plain, *inputs):
    values, gradients = [], []
    for function in (ours, plain):
        leaves = [value.clone().requires_grad_() for value in inputs]
        value = function(*leaves)
        values.append(value.double())
        gradients.append(torch.autograd.grad(value, leaves))
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_discriminator_is_cross_entropy(smoothing):
    assert_same_with_gradients(
        lambda real, fake: logistic_discriminator(real, fake, smoothing),
        lambda real, fake: plain_discriminator(real, fake, smoothing),
        REAL,
        FAKE,
    )


def test_generators_are_the_papers():
    def sigmoid(x):
        return 1 / (1 + torch.exp(-x.double()))

    assert_same_with_gradients(non_saturating_generator, lambda fake: -sigmoid(fake).log().mean(), FAKE)
    assert_same_with_gradients(saturating_generator, lambda fake: (1 - sigmoid(fake)).log().mean(), FAKE)


def test_hinge_is_the_paper_s():
    def plain(real, fake):
        on_real = torch.where(real < 1, 1 - real, 0.0).double().sum() / len(real)
        return on_real + torch.where(fake > -1, 1 + fake, 0.0).double().sum() / len(fake)

    assert_same_with_gradients(hinge_discriminator, plain, REAL, FAKE)
    assert_same_with_gradients(hinge_discriminator, plain, REAL[:2], torch.tensor([-3.0, -0.2, 5.0, 0.4]))


def test_wasserstein_critic_and_generator_are_differences_of_means():
    weights = torch.tensor([0.5, 0.5, -0.25, -0.25, -0.25, -0.25]).double()  # of 4 real and 2 generated images
    real, fake = torch.tensor([0.3, -1.2, 4.0, 7.5]), FAKE[:2]
    assert_same_with_gradients(wasserstein_critic, lambda r, f: weights @ torch.cat([f, r]).double(), real, fake)
    assert_same_with_gradients(
        critic_generator, lambda fake: -(fake.double() @ torch.full((3,), 1 / 3.0).double()), FAKE
    )


@pytest.mark.parametrize("loss", [hinge_discriminator, wasserstein_critic, logistic_discriminator])
def test_discriminator_losses_are_means_over_whatever_shape_the_scores_have(loss):
    real, fake = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.linspace(-2, 2, 5)
    torch.testing.assert_close(loss(real, fake), loss(real.flatten(), fake.view(5, 1)))
    torch.testing.assert_close(loss(real.repeat(2, 1, 1), fake), loss(real, fake))


@pytest.mark.parametrize("loss", [hinge_discriminator, wasserstein_critic, logistic_discriminator])
def test_half_precision_scores_are_averaged_in_float32(loss):
    real, fake = torch.tensor([-60000.0, -60000.0, 0.1]).half(), torch.tensor([60000.0, 60000.0, 0.3]).half()
    value = loss(real, fake)
    assert value.dtype == torch.float32
    assert torch.equal(value, loss(real.float(), fake.float())), "a sum beyond float16's largest number"
    for generator in (critic_generator, non_saturating_generator, saturating_generator):
        assert torch.equal(generator(fake), generator(fake.float()))


def reference_log_softplus(score):
    """Value and slope by the definition, in double precision."""
    softplus = math.log1p(math.exp(score))
    return math.log(softplus), 1 / (1 + math.exp(-score)) / softplus


def log_softplus_and_slope(scores):
    scores = scores.clone().requires_grad_()
    values = log_softplus(scores)
    return values, torch.autograd.grad(values.sum(), scores)[0]


# torch's softplus(a) is a beyond 20, which costs 1e-10 in double precision
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-10)])
def test_log_softplus_is_its_definition_from_minus_to_plus_200(dtype, tolerance):
    scores = torch.cat([torch.linspace(-200, 200, 4001), torch.linspace(-16, -14, 401)]).to(dtype)
    values, slopes = log_softplus_and_slope(scores)
    assert values.dtype == dtype
    expected = [reference_log_softplus(score) for score in scores.tolist()]
    for ours, theirs in zip((values, slopes), zip(*expected, strict=True), strict=True):
        theirs = torch.tensor(theirs, dtype=torch.float64)
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


def test_log_softplus_of_extreme_scores_has_a_value_and_a_slope():
    values, slopes = log_softplus_and_slope(torch.tensor([-1e30, -1e4, -104.0, 1e4, 1e30]))
    assert values.tolist() == pytest.approx([-1e30, -1e4, -104, math.log(1e4), math.log(1e30)], rel=1e-6)
    assert slopes.tolist() == pytest.approx([1, 1, 1, 1e-4, 1e-30], rel=1e-6)


def test_log_softplus_of_half_precision_scores_is_float32_s():
    scores = torch.tensor([-60000.0, -30.0, -12.5, 0.1, 40.0]).half()
    values, slopes = log_softplus_and_slope(scores)
    expected, expected_slopes = log_softplus_and_slope(scores.float())
    assert torch.equal(values, expected)
    assert torch.equal(slopes, expected_slopes.half())
