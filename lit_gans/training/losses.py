"""Adversarial losses: logits in, scalar out. All are means over the batch, in float32 or wider."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from lit_gans.common.precision import full_precision


def logistic_discriminator(
    real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Logistic loss of a discriminator on logits (Goodfellow et al. 2014, equation 1).

    Args:
        real: logits of real images.
        fake: logits of generated images.
        label_smoothing: the target of real images is 1 - label_smoothing (one-sided: Salimans et al. 2016, section
            3.4), in [0, 1).
    """
    real, fake = full_precision(real), full_precision(fake)
    on_real = functional.softplus(-real).mean()
    if label_smoothing:
        on_real = on_real + label_smoothing * real.mean()
    return on_real + functional.softplus(fake).mean()


def non_saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Generator maximises log D(G(z)) (Goodfellow et al. 2014, section 3)."""
    return functional.softplus(-full_precision(fake)).mean()


def saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Generator minimises log(1 - D(G(z))) (Goodfellow et al. 2014, equation 1): vanishes where D is confident."""
    return -functional.softplus(full_precision(fake)).mean()


def hinge_discriminator(real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"]) -> Float[Tensor, ""]:
    """Hinge loss (Lim and Ye 2017; Miyato et al. 2018, equation 16)."""
    return functional.relu(1 - full_precision(real)).mean() + functional.relu(1 + full_precision(fake)).mean()


def wasserstein_critic(real: Float[Tensor, " *shape"], fake: Float[Tensor, " *other"]) -> Float[Tensor, ""]:
    """Difference of the mean scores (Arjovsky et al. 2017, equation 2), negative where real images score higher."""
    return full_precision(fake).mean() - full_precision(real).mean()


def critic_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Generator maximises its images' mean score: with the hinge (Miyato et al. 2018, equation 17) and in WGAN."""
    return -full_precision(fake).mean()


def log_softplus(scores: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    """Logarithm of softplus, for D2GAN's positive discriminators.

    Softplus itself underflows at scores below -88; far below zero log softplus(a) = a - exp(a) / 2 + O(exp(2 a)).
    """
    scores = full_precision(scores)
    far = scores < _FAR_BELOW
    near = functional.softplus(torch.where(far, _FAR_BELOW, scores)).log()  # the other branch must not give nan
    return torch.where(far, scores - scores.clamp(max=_FAR_BELOW).exp() / 2, near)


_FAR_BELOW = -15.0
