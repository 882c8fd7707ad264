import pytest
import torch
from torch import nn

from lit_gans.penalties import r1_penalty


class Scored(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, images):
        return self.function(images.flatten(1))


def test_of_a_linear_discriminator_is_half_its_squared_norm():
    weight = torch.randn(12, generator=torch.Generator().manual_seed(0), requires_grad=True)
    penalty = r1_penalty(Scored(lambda images: images @ weight), torch.randn(5, 3, 2, 2))
    assert penalty.item() == pytest.approx((weight.square().sum() / 2).item())
    torch.testing.assert_close(torch.autograd.grad(penalty, weight)[0], weight.detach())


def test_is_the_mean_over_images_and_float32_under_autocast():
    images = torch.tensor([[1.0], [2.0]])[:, :, None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):  # D(x) = x^3, gradient 3 x^2
        penalty = r1_penalty(Scored(lambda x: x.pow(3).sum(1)), images.bfloat16())
    assert penalty.dtype == torch.float32
    assert penalty.item() == (3.0**2 + 12.0**2) / 2 / 2


def test_a_layer_under_autocast_gives_the_float32_value_and_gradient():
    torch.manual_seed(0)
    network, images = (
        nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Softplus(), nn.Linear(8, 1)),
        torch.randn(5, 3, 2, 2),
    )
    expected = r1_penalty(network, images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(images).dtype == torch.bfloat16
        penalty = r1_penalty(network, images)
    assert torch.equal(penalty, expected)
    for ours, theirs in zip(*(torch.autograd.grad(p, network[1].weight) for p in (penalty, expected)), strict=True):
        assert torch.equal(ours, theirs)


def test_equals_the_gradient_by_finite_differences_and_leaves_the_images_alone():
    torch.manual_seed(0)
    weight = torch.randn(4, 6, requires_grad=True)
    images = torch.randn(3, 1, 2, 2)
    penalty = r1_penalty(Scored(lambda x: torch.tanh(x @ weight).sum(1)), images)  # grad = W (1 - tanh^2)
    slopes = (1 - torch.tanh(images.flatten(1) @ weight).square()) @ weight.T
    expected = slopes.square().sum(1).mean() / 2
    torch.testing.assert_close(penalty, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(penalty, weight), torch.autograd.grad(expected, weight), rtol=1e-5, atol=1e-6
    )
    assert not images.requires_grad
