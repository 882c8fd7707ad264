"""Coverage of known modes of the data: the number of modes that samples cover, and how evenly."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor


def mode_statistics(counts: Float[Tensor, " modes"], num: int, min_samples: int) -> dict[str, float]:
    """Computes mode coverage from the number of samples in each mode.

    Args:
        counts: number of samples in each mode.
        num: number of all samples, including those outside all modes.
        min_samples: smallest number of samples for which a mode counts as covered.

    Returns:
        `modes_covered`; `high_quality`, the fraction of samples in any mode, in [0, 1]; `kl_uniform`, the divergence
        KL(samples' modes || uniform) in nats, infinite if no sample is in any mode.
    """
    inside = counts.sum().item()
    shares = counts[counts > 0] / max(inside, 1)
    divergence = (shares * shares.log()).sum().item() + math.log(len(counts)) if inside else math.inf
    return {
        "modes_covered": float((counts >= min_samples).sum()),
        "high_quality": inside / num,
        "kl_uniform": max(0.0, divergence),
    }
