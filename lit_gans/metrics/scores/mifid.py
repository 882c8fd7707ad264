"""Memorization-informed FID."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn.functional import normalize

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.base import StoredFeatures
from lit_gans.metrics.scores.fid import Gaussian, frechet_distance

_ROWS = 1024  # number of rows of the cosine similarity matrix in memory at once


def memorization_distance(real: Float[Tensor, "n f"], fake: Float[Tensor, "k f"]) -> float:
    """Computes the memorization distance (Bai et al. 2021, section 3.2), which is in [0, 1].

    The memorization distance is the cosine distance 1 - |cosine| of each generated image to its nearest real image,
    averaged over all generated images.
    """
    real = normalize(real.double(), dim=1)
    total = 0.0
    for rows in fake.split(_ROWS):
        total += (1 - (normalize(rows.double(), dim=1) @ real.T).abs()).min(1).values.sum().item()
    return max(0.0, total / len(fake))


class MemorizationInformedFrechetInceptionDistance(StoredFeatures):
    """Memorization-informed FID (Bai et al. 2021, equation 3).

    The score is the FID, divided by the memorization distance if this distance is below a threshold. As in the paper,
    the memorization distance uses the distance from each generated image to its nearest real image. The class in
    torchmetrics instead uses the distance from each real image to its nearest generated image. `compute` returns a
    scalar. See `FeatureScore` for further arguments.

    Args:
        cosine_distance_eps: threshold of the memorization distance, in (0, 1]. At or above the threshold, the FID is
            not divided, because the generator is not considered to memorize.

    Raises:
        RefusedInput: `cosine_distance_eps` is outside (0, 1].

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import FrechetInceptionDistance, MemorizationInformedFrechetInceptionDistance
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> fid = FrechetInceptionDistance(DigitsExtractor())
        >>> mifid = MemorizationInformedFrechetInceptionDistance(DigitsExtractor())
        >>> images = torch.randint(0, 256, (100, 1, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        >>> for metric in (mifid, fid):
        ...     metric.update(images, real=True)
        ...     metric.update(images[:50], real=False)
        >>> mifid.compute() > 1000 * fid.compute()  # the images are copies
        tensor(True)
    """

    needs_covariance = True
    directions = {"mifid": "min"}

    def __init__(self, feature: nn.Module | None = None, *, cosine_distance_eps: float = 0.1, **kwargs: Any) -> None:
        if not 0 < cosine_distance_eps <= 1:
            raise RefusedInput(f"cosine_distance_eps={cosine_distance_eps} must be in (0, 1].")
        super().__init__(feature, **kwargs)
        self.cosine_distance_eps = cosine_distance_eps

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the distance.

        Raises:
            RefusedInput: there are fewer than two real or two generated images.
        """
        real, fake = self.stored()
        distance = memorization_distance(real, fake)
        penalty = distance + 1e-15 if distance < self.cosine_distance_eps else 1.0
        value = frechet_distance(self.of_real(real, Gaussian.of_rows), Gaussian.of_rows(fake)) / penalty
        return torch.tensor(value, dtype=torch.float64, device=self.device)
