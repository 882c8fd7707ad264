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
