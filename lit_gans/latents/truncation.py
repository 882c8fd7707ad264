"""Truncates latents, which trades the diversity of images for quality."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.training.module import AdversarialModule


def uses_length(module: AdversarialModule) -> bool:
    """Returns whether images depend on the length of a latent, so that truncation can make them more typical.

    A generator that normalizes its latents uses only their direction.
    """
    latents = module.latents(2)
    first, second = module.decode(latents)
    (shorter,) = module.decode(latents[:1] / 2)
    return bool((shorter - first).norm() >= 1e-3 * (second - first).norm())


def truncated(latents: Float[Tensor, "n z"], bound: float | None) -> Float[Tensor, "n z"]:
    """Maps latents from a standard normal distribution to a normal distribution that is truncated to [-bound, bound].

    The truncation trick (Brock et al. 2019, section 3.1) resamples all numbers beyond the bound. This function instead
    maps each number to the number at the same quantile of the truncated distribution. A smaller bound therefore changes
    an image gradually instead of replacing it. Truncation towards an average latent (Karras et al. 2019, section 2.1)
    is not applicable: no generator of this package has a mapping network, and the mean of the latents is 0.

    Args:
        latents: latents from a standard normal distribution.
        bound: maximum absolute value, which must be greater than 0. If None, the latents are returned unchanged.

    Raises:
        RefusedInput: the bound is not greater than 0.
    """
    if bound is None:
        return latents
    if not 0 < bound < math.inf:
        raise RefusedInput(f"truncation={bound} must be greater than 0; use null for no truncation.")
    numbers = latents.double()
    inside = math.erf(bound / math.sqrt(2))  # probability that a standard normal number is within the bound
    quantiles = (1 - inside) / 2 + inside * torch.special.ndtr(numbers)
    return torch.special.ndtri(quantiles).clamp(-bound, bound).to(latents.dtype)
