"""Memorization-informed FID."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.fid import frechet_distance
from lit_gans.metrics.scores.score import Score, needed
from lit_gans.metrics.statistics import Summary

_ROWS = 1024  # number of rows of the cosine matrix in memory at once


def memorization_distance(real: Float[Tensor, "n f"], fake: Float[Tensor, "k f"]) -> float:
    """Computes the mean over generated images of the smallest 1 - |cosine| to a real image, in [0, 1] (Bai et al. 2021,
    section 3.2).
    """
    real = normalize(real.double(), dim=1)
    total = 0.0
    for rows in fake.split(_ROWS):
        total += (1 - (normalize(rows.double(), dim=1) @ real.T).abs()).min(1).values.sum().item()
    return max(0.0, total / len(fake))


@dataclass(frozen=True)
class MiFID(Score):
    """FID, divided by the memorization distance if it is below a threshold (Bai et al. 2021, equation 3).

    Args:
        threshold: memorization distance, in (0, 1], from which the generator is not considered to memorize.

    Raises:
        RefusedInput: `threshold` is outside (0, 1].
    """

    needs_covariance = needs_features = True
    directions = {"mifid": "min"}

    threshold: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise RefusedInput(f"threshold={self.threshold} must be in (0, 1].")

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        distance = memorization_distance(needed(real.features), needed(fake.features))
        return {"mifid": frechet_distance(real, fake) / (distance + 1e-15 if distance < self.threshold else 1.0)}
