import torch
from torch import nn

from lit_gans.training.adaptive_weight import adaptive_weight, gradient_at, weight_gradient


def test_the_gradient_of_the_weights_is_that_of_autograd():
    layer, features = nn.Conv2d(5, 3, 3, padding=(2, 0), stride=2, dilation=2), torch.randn(2, 5, 8, 9)
    images = layer(features)
    loss = images.sin().sum()
    (expected,) = torch.autograd.grad(loss, layer.weight, retain_graph=True)
    (gradient,) = torch.autograd.grad(loss, images)
    torch.testing.assert_close(weight_gradient(layer, features, gradient), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(weight_gradient(layer, features, gradient), expected)


def test_the_weight_is_the_ratio_of_the_norms():
    reconstruction, adversarial = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])
    torch.testing.assert_close(adaptive_weight(reconstruction, adversarial, 1e4), torch.tensor(5 / (2 + 1e-6)))
    assert adaptive_weight(reconstruction, torch.zeros(1, 2), 1e4) == 1e4
    assert adaptive_weight(reconstruction, adversarial, 0.25) == 0.25
    assert adaptive_weight(torch.zeros(1, 2), torch.zeros(1, 2), 1e4) == 0


def test_gradients_through_half_precision_do_not_vanish():
    images = torch.ones(4, 1, 1, 1, requires_grad=True)
    loss = (images.half() * 1e-4).float().mean() * 1e-4
    torch.testing.assert_close(gradient_at(loss, images), torch.full((4, 1, 1, 1), 2.5e-9), rtol=0.02, atol=0)
