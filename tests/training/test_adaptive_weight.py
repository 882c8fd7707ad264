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


def test_the_weight_is_the_ratio_of_the_norms_of_the_averaged_gradients():
    layer, features = nn.Conv1d(1, 2, 1), torch.ones(1, 1, 1)
    zero, reconstruction, adversarial = torch.tensor([[[[0.0], [0.0]]], [[[3.0], [4.0]]], [[[0.0], [2.0]]]])

    def weight(*gradients, mean=lambda gradients: gradients, **arguments):
        return adaptive_weight(layer, features, *gradients, mean, **arguments)

    torch.testing.assert_close(weight(reconstruction, adversarial), torch.tensor(5 / (2 + 1e-6)))
    assert weight(reconstruction, zero) == 1e4
    assert weight(reconstruction, adversarial, largest=0.25) == 0.25
    assert weight(zero, zero) == 0
    # another rank, whose reconstruction loss has the opposite gradient, and whose adversarial loss has the same one
    opposite = torch.stack([-reconstruction, adversarial])
    assert weight(reconstruction, adversarial, mean=lambda own: (own + opposite.view_as(own)) / 2) == 0


def test_gradients_through_half_precision_do_not_vanish():
    images = torch.ones(4, 1, 1, 1, requires_grad=True)
    loss = (images.half() * 1e-4).float().mean() * 1e-4
    torch.testing.assert_close(gradient_at(loss, images), torch.full((4, 1, 1, 1), 2.5e-9), rtol=0.02, atol=0)
