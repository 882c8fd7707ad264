"""Gradient penalties, computed in float32 without autocast, since half precision is too coarse for gradient norms."""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from lit_gans.common.compilation import uncompiled
from lit_gans.common.precision import full_precision, without_autocast
from lit_gans.networks.spectral import SpectralNorm
from lit_gans.training.losses import Scores, tensors_of


def zero_centered_penalty(images: Float[Tensor, "n *shape"], scores: Scores) -> Float[Tensor, ""]:
    """Computes half the mean squared norm of the gradient of the scores with respect to their images.

    For real images, the result is R1. For generated images, the result is R2 (Mescheder et al. 2018, equation 9 and
    below). This function reuses the graph of the scores and needs no additional forward pass.

    Args:
        images: images that require gradients.
        scores: scores that were computed from these images, with any number of scores per image. Several tensors, for
            example from a multi-scale discriminator, are summed.

    Returns:
        E[||grad D(x)||^2] / 2 with its graph, to be multiplied by gamma.
    """
    return _flat_gradient(images, scores).square().sum(1).mean() / 2


def r1_penalty(discriminator: nn.Module, real: Float[Tensor, "n *shape"], *condition: Tensor) -> Float[Tensor, ""]:
    """Computes R1, half the mean squared gradient norm of D at real images (Mescheder et al. 2018, equation 9).

    Unlike `zero_centered_penalty`, this function runs a separate forward pass in float32. For generated images, the
    result is R2.

    With batch norm, the score of an image depends on the other images in the batch. R1 then uses the gradient of the
    sum of all scores. StyleGAN2 computes R1 in the same way with minibatch standard deviation (Karras et al. 2020).
    For 64 digits and the discriminator of `zoo/dcgan_digits`, the penalty is 0.074. With the gradient of each image's
    own score, it would be 0.069. A constant discriminator has a penalty of 0 in both cases. `gradient_penalty` demands
    a gradient norm of 1, which is defined for single images only. So `WGANGP` raises an error for batch norm
    (Gulrajani et al. 2017, section 4).

    Args:
        discriminator: the discriminator, not wrapped by a strategy.
        real: real images.
        *condition: tensors that the discriminator is conditioned on.

    Returns:
        E[||grad D(x)||^2] / 2, to be multiplied by gamma.
    """
    return _gradient(discriminator, real, condition).square().sum(1).mean() / 2


def gradient_penalty(
    critic: nn.Module,
    real: Float[Tensor, "n *shape"],
    fake: Float[Tensor, "n *shape"],
    eps: Float[Tensor, "n *ones"],
    *condition: Tensor,
) -> Float[Tensor, ""]:
    """Computes the two-sided gradient penalty (Gulrajani et al. 2017, equation 3).

    Args:
        critic: the critic, not wrapped by a strategy.
        real, fake: real and generated images.
        eps: one random number in [0, 1) for each image, with as many dimensions as the images.
        *condition: tensors that the critic is conditioned on.

    Returns:
        E[(||grad D(eps x + (1 - eps) G(z))|| - 1)^2], to be multiplied by lambda.
    """
    fake, real = full_precision(fake.detach()), full_precision(real.detach())
    between = torch.lerp(fake, real, eps.to(real.dtype))
    norms: Tensor = torch.linalg.vector_norm(_gradient(critic, between, condition), dim=1)
    return (norms - 1).square().mean()


def _gradient(network: nn.Module, images: Tensor, condition: tuple[Tensor, ...]) -> Float[Tensor, "n pixels"]:
    """Returns the gradient of the scores with respect to each image, with its graph, without changing buffers."""
    with without_autocast(images), uncompiled(network):
        images = full_precision(images.detach()).requires_grad_(True)
        scores = functional_call(network, _copies_of_buffers(network), (images, *condition), tie_weights=False)
        return _flat_gradient(images, scores)


def _copies_of_buffers(network: nn.Module) -> dict[str, Tensor]:
    """Returns copies of all buffers that a forward pass might update, such as the running statistics of batch norm.

    The vectors of `SpectralNorm` are excluded, because the first forward pass of a step must update them.
    """
    return {
        f"{prefix}.{name}" if prefix else name: buffer.clone()
        for prefix, layer in network.named_modules(remove_duplicate=False)
        if not isinstance(layer, SpectralNorm)
        for name, buffer in layer.named_buffers(recurse=False, remove_duplicate=False)
    }


def _flat_gradient(images: Tensor, scores: Scores) -> Float[Tensor, "n pixels"]:
    total = reduce(add, [full_precision(tensor).sum() for tensor in tensors_of(scores)])
    (gradient,) = torch.autograd.grad(total, images, create_graph=True)
    return full_precision(gradient).flatten(1)
