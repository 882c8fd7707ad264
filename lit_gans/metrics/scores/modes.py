"""Coverage of the known modes of the data: how many modes the samples reach, and how evenly."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor


def mode_statistics(counts: Float[Tensor, " modes"], num: int, min_samples: int) -> dict[str, float]:
    """Returns mode coverage from the number of samples in each mode.

    Args:
        counts: samples in each mode.
        num: all samples, also those outside every mode.
        min_samples: samples from which on a mode counts as covered.

    Returns:
        `modes_covered`; `high_quality`, the share of samples in any mode, in [0, 1]; `kl_uniform`, the divergence
        KL(samples' modes || uniform) in nats, infinite where no sample is in any mode.
    """
    inside = counts.sum().item()
    shares = counts[counts > 0] / max(inside, 1)
    divergence = (shares * shares.log()).sum().item() + math.log(len(counts)) if inside else math.inf
    return {
        "modes_covered": float((counts >= min_samples).sum()),
        "high_quality": inside / num,
        "kl_uniform": max(0.0, divergence),
    }
