"""Adversarial losses: logits in, scalar out. All are means over the batch, in float32 or wider."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def _full(logits: Tensor) -> Tensor:
    """Half-precision logits lose the tail of softplus: compute every loss in float32 at least."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


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
    real, fake = _full(real), _full(fake)
    on_real = functional.softplus(-real).mean()
    if label_smoothing:
        on_real = on_real + label_smoothing * real.mean()
    return on_real + functional.softplus(fake).mean()


def non_saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Generator maximises log D(G(z)) (Goodfellow et al. 2014, section 3)."""
    return functional.softplus(-_full(fake)).mean()


def saturating_generator(fake: Float[Tensor, " *shape"]) -> Float[Tensor, ""]:
    """Generator minimises log(1 - D(G(z))) (Goodfellow et al. 2014, equation 1): vanishes where D is confident."""
    return -functional.softplus(_full(fake)).mean()
