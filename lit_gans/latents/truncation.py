"""Truncation: better single images for less variety."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput


def truncated(latents: Float[Tensor, "n z"], bound: float | None) -> Float[Tensor, "n z"]:
    """Maps standard normal numbers to a normal distribution that is cut off at -bound and bound.

    The truncation trick of Brock et al. 2019, section 3.1, which draws the numbers beyond the bound again. Here each
    number is mapped to the one with the same rank in the truncated distribution, so that a smaller bound moves an image
    instead of replacing it. No generator here has a mapping network, so that there is no average latent to move towards
    (Karras et al. 2019, section 2.1): the mean of the latents is 0.

    Args:
        latents: standard normal numbers.
        bound: largest absolute value, greater than 0; None leaves the latents as they are.

    Raises:
        RefusedInput: the bound is not greater than 0.
    """
    if bound is None:
        return latents
    if not 0 < bound < math.inf:
        raise RefusedInput(f"truncation={bound} must be greater than 0; null for no truncation.")
    numbers = latents.double()
    inside = math.erf(bound / math.sqrt(2))  # probability of a number within the bound
    ranks = (1 - inside) / 2 + inside * torch.special.ndtr(numbers)
    return torch.special.ndtri(ranks).clamp(-bound, bound).to(latents.dtype)
