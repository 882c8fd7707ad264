import math

import pytest
import torch

from lit_gans.losses import logistic_discriminator, non_saturating_generator, saturating_generator

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


def test_closed_form_at_zero_logits():
    zero = torch.zeros(5)
    assert logistic_discriminator(zero, zero).item() == pytest.approx(2 * math.log(2))
    assert non_saturating_generator(zero).item() == pytest.approx(math.log(2))
    assert saturating_generator(zero).item() == pytest.approx(-math.log(2))


def test_half_precision_logits_are_computed_in_float32_and_extreme_ones_stay_finite():
    fake = torch.tensor([-30.0, 12.5], dtype=torch.float16)
    loss = non_saturating_generator(fake)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx((30 + math.log1p(math.exp(-12.5))) / 2, rel=1e-6)
    assert torch.isfinite(logistic_discriminator(torch.tensor([-1e4]), torch.tensor([1e4])))
    assert non_saturating_generator(fake.double()).dtype == torch.float64
