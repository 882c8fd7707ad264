"""Adaptive weight of an adversarial loss relative to a reconstruction loss, from the gradients of the last layer.

Esser, Rombach and Ommer 2021, "Taming Transformers for High-Resolution Image Synthesis", equation 7.

The gradient of a convolution's weights is computed from the convolution's input and the gradient of its output. This
avoids an additional backward pass through the generator, whose weights a strategy might shard. The training step reuses
the gradients of the output.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from lit_gans.common.precision import full_precision, without_autocast

_DELTA = 1e-6  # delta in equation 7; 1e-4 in the authors' code
LARGEST = 1e4  # maximum weight, for a reconstruction loss in the unit of the authors' code
_SCALE = 2.0**12  # prevents underflow of gradients that pass through fp16; a power of two causes no rounding


def gradient_at(loss: Float[Tensor, ""], images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Returns the gradient of a loss with respect to images, which must be leaves of the graph."""
    (gradient,) = torch.autograd.grad(loss * _SCALE, images)
    return gradient / _SCALE


def weight_gradient(
    layer: nn.Conv2d, features: Float[Tensor, "n a h w"], gradient: Float[Tensor, "n c p q"]
) -> Float[Tensor, "c a k l"]:
    """Returns the gradient of a convolution's weights, given its input and the gradient of its output."""
    shape = (layer.out_channels, layer.in_channels, *layer.kernel_size)
    with without_autocast(features):
        options = layer.stride, layer.padding, layer.dilation
        result: Tensor = conv2d_weight(full_precision(features.detach()), shape, gradient, *options)  # type: ignore[no-untyped-call]
    return result


def adaptive_weight(
    reconstruction: Float[Tensor, "*shape"], adversarial: Float[Tensor, "*shape"], largest: float
) -> Float[Tensor, ""]:
    """Computes the adaptive weight from the gradients of both losses (equation 7), clamped to at most `largest`.

    Args:
        reconstruction: gradient of the reconstruction loss.
        adversarial: gradient of the adversarial loss.
        largest: maximum weight.
    """
    norms = torch.linalg.vector_norm(reconstruction), torch.linalg.vector_norm(adversarial)
    return torch.clamp(norms[0] / (norms[1] + _DELTA), max=largest)


def with_gradient(
    value: Float[Tensor, ""], images: Float[Tensor, "n c h w"], gradient: Float[Tensor, "n c h w"]
) -> Float[Tensor, ""]:
    """Returns a scalar that equals `value` and whose gradient with respect to `images` is `gradient`."""
    product = (images * gradient.detach()).sum()
    return value.detach() + (product - product.detach())
