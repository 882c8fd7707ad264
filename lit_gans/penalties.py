"""Gradient penalties. All in float32 outside autocast: a half-precision gradient norm is wrong."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def r1_penalty(discriminator: nn.Module, real: Float[Tensor, "n *shape"]) -> Float[Tensor, ""]:
    """R1: half the mean squared norm of the gradient of D at real images (Mescheder et al. 2018, equation 9).

    Args:
        discriminator: the raw network, without a wrapper.
        real: real images.

    Returns:
        E[||grad D(x)||^2] / 2, to be multiplied by gamma.
    """
    with torch.autocast(real.device.type, enabled=False):
        real = real.detach().float().requires_grad_(True)
        (gradient,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
        return gradient.square().flatten(1).sum(1).mean() / 2
