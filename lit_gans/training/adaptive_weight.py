"""Adaptive weight of an adversarial loss relative to a reconstruction loss, from the gradients of the last layer.

Esser, Rombach and Ommer 2021, "Taming Transformers for High-Resolution Image Synthesis", equation 7.

The gradient of a convolution's weights is computed from the convolution's input and the gradient of its output. This
avoids an additional backward pass through the generator, whose weights a strategy might shard. The training step reuses
the gradients of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision, without_autocast

_DELTA = 1e-6  # delta in equation 7; 1e-4 in the authors' code
LARGEST = 1e4  # maximum weight in the authors' code
_SCALE = 2.0**12  # prevents underflow of gradients that pass through fp16; a power of two causes no rounding


def gradient_at(
    loss: Float[Tensor, ""], images: Float[Tensor, "n c *shape"], retain_graph: bool = False
) -> Float[Tensor, "n c *shape"]:
    """Returns the gradient of a loss with respect to images."""
    (gradient,) = torch.autograd.grad(loss * _SCALE, images, retain_graph=retain_graph)
    return gradient / _SCALE


def weight_gradient(
    layer: nn.Module, features: Float[Tensor, "n a *shape"], gradient: Float[Tensor, "n c *other"]
) -> Float[Tensor, "c b *kernel"]:
    """Returns the gradient of a convolution's weights, given the layer's input and the gradient of its output.

    Raises:
        RefusedInput: if the layer is not a convolution.
    """
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) or layer.padding_mode != "zeros":
        raise RefusedInput(
            f"the last layer is {type(layer).__name__}: an adaptive weight needs a Conv1d, Conv2d or Conv3d with zero"
            " padding."
        )
    shape = layer.out_channels, layer.in_channels // layer.groups, *layer.kernel_size
    with without_autocast(features):
        options = layer.stride, layer.padding, layer.dilation, layer.groups
        function: Callable[..., Tensor] = _WEIGHT_GRADIENTS[len(layer.kernel_size) - 1]
        return function(full_precision(features.detach()), shape, full_precision(gradient), *options)


_WEIGHT_GRADIENTS = conv1d_weight, conv2d_weight, conv3d_weight


@dataclass
class RecordedLayer:
    """The last layer of a generator, and its tensors in one forward pass.

    Attributes:
        layer: the layer, a convolution.
        input, output: tensors of the last forward pass.
    """

    layer: nn.Module
    input: Tensor | None = None
    output: Tensor | None = None


@contextmanager
def record_layer(layer: nn.Module) -> Iterator[RecordedLayer]:
    """Context manager that records the input and the output of a layer, for `Adversary.loss`.

    with record_layer(autoencoder.decoder.last) as last:
        output = autoencoder(images)
    """
    recorded = RecordedLayer(layer)

    def record(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        recorded.input, recorded.output = inputs[0], output

    with layer.register_forward_hook(record):
        yield recorded


def adaptive_weight(
    layer: nn.Module,
    features: Float[Tensor, "n a *shape"],
    reconstruction: Float[Tensor, "n c *other"],
    adversarial: Float[Tensor, "n c *other"],
    mean_over_ranks: Callable[[Tensor], Tensor],
    largest: float = LARGEST,
) -> Float[Tensor, ""]:
    """Computes the adaptive weight from the gradients of both losses (equation 7). It is equal on all ranks.

    Args:
        layer: the generator's last convolution.
        features: the layer's input.
        reconstruction: gradient of the reconstruction loss with respect to the layer's output.
        adversarial: gradient of the adversarial loss with respect to the layer's output.
        mean_over_ranks: function that averages a tensor over all ranks.
        largest: maximum weight. The default is for a reconstruction loss in the unit of the authors' code.
    """
    gradients = [weight_gradient(layer, features, gradient) for gradient in (reconstruction, adversarial)]
    norms = [torch.linalg.vector_norm(gradient) for gradient in mean_over_ranks(torch.stack(gradients))]
    return torch.clamp(norms[0] / (norms[1] + _DELTA), max=largest)


def with_gradient(
    value: Float[Tensor, ""], images: Float[Tensor, "n c *shape"], gradient: Float[Tensor, "n c *shape"]
) -> Float[Tensor, ""]:
    """Returns a scalar that equals `value` and whose gradient with respect to `images` is `gradient`."""
    product = (images * gradient.detach()).sum()
    return value.detach() + (product - product.detach())
