"""Gradient penalties. All in float32 outside autocast: a half-precision gradient norm is wrong."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.precision import full_precision, without_autocast


def r1_penalty(discriminator: nn.Module, real: Float[Tensor, "n *shape"], *condition: Tensor) -> Float[Tensor, ""]:
    """R1: half the mean squared norm of the gradient of D at real images (Mescheder et al. 2018, equation 9).

    Args:
        discriminator: the raw network, without a wrapper.
        real: real images.
        *condition: what the discriminator is conditioned on.

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
    """Two-sided gradient penalty (Gulrajani et al. 2017, equation 3).

    Args:
        critic: the raw network, without a wrapper.
        real, fake: images.
        eps: one number in [0, 1) for each image, with as many dimensions as the images.
        *condition: what the critic is conditioned on.

    Returns:
        E[(||grad D(eps x + (1 - eps) G(z))|| - 1)^2], to be multiplied by lambda.
    """
    between = torch.lerp(full_precision(fake.detach()), full_precision(real.detach()), full_precision(eps))
    norms: Tensor = torch.linalg.vector_norm(_gradient(critic, between, condition), dim=1)
    return (norms - 1).square().mean()


def _gradient(network: nn.Module, images: Tensor, condition: tuple[Tensor, ...]) -> Float[Tensor, "n pixels"]:
    """Returns the gradient of the scores at each image, with a graph."""
    with without_autocast(images):
        images = full_precision(images.detach()).requires_grad_(True)
        (gradient,) = torch.autograd.grad(network(images, *condition).sum(), images, create_graph=True)
    flat: Tensor = gradient.flatten(1)
    return flat
