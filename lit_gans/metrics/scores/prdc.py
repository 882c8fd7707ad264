"""Precision, recall, density and coverage as a torchmetrics `Metric`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from lit_gans.common.errors import refuse_below
from lit_gans.metrics.scores.base import StoredFeatures

_ROWS = 1024  # number of rows of the distance matrix in memory at once


def manifold_scores(
    real: Float[Tensor, "n f"],
    fake: Float[Tensor, "k f"],
    nearest: int,
    real_radii: Float64[Tensor, " n"] | None = None,
) -> dict[str, float]:
    """Computes precision and recall (Kynkäänniemi et al. 2019), density and coverage (Naeem et al. 2020, eq. 4 and 5).

    The manifold of real or of generated images is the union of balls around the images' features. The radius of each
    ball is the distance to the `nearest`-th nearest neighbor.

    Args:
        real, fake: features of the real and of the generated images.
        nearest: number of the neighbor that determines the radius of a ball.
        real_radii: output of `squared_radii` for the real images; None computes it.

    Returns:
        The four scores by name.
    """
    real_radii = squared_radii(real, nearest) if real_radii is None else real_radii
    fake_radii = squared_radii(fake, nearest)
    real, fake = real.double(), fake.double()
    num_real_balls = torch.zeros(len(fake), device=fake.device)
    recalled = covered = 0.0
    for start, distances in _distances(real, fake):
        radii = real_radii[start : start + len(distances), None]
        num_real_balls += (distances < radii).sum(0)
        recalled += (distances < fake_radii).any(1).sum().item()
        covered += (distances.min(1, keepdim=True).values < radii).sum().item()
    return {
        "precision": (num_real_balls > 0).double().mean().item(),
        "recall": recalled / len(real),
        "density": num_real_balls.double().mean().item() / nearest,
        "coverage": covered / len(real),
    }


def _distances(one: Tensor, two: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields the matrix of squared distances in blocks of rows. Each block comes with the index of its first row."""
    squares = two.square().sum(1)
    for start in range(0, len(one), _ROWS):
        rows = one[start : start + _ROWS]
        yield start, (rows.square().sum(1, keepdim=True) + squares - 2 * rows @ two.T).clamp_(min=0)


def squared_radii(features: Float[Tensor, "n f"], nearest: int) -> Float64[Tensor, " n"]:
    """Returns the squared distance of each row to its `nearest`-th nearest neighbor, excluding the row itself.

    The function computes the distances between all pairs of rows.
    """
    features = features.double()
    return torch.cat([block.kthvalue(nearest + 1, dim=1).values for _, block in _distances(features, features)])


class PrecisionRecallDensityCoverage(StoredFeatures):
    """Precision and density, which measure the fidelity of samples, and recall and coverage, which measure diversity.

    `compute` returns a dictionary of scalars. See `FeatureScore` for further arguments.

    Args:
        nearest: number k of the k-th nearest neighbor that determines the radius of a ball. Naeem et al. use 5, and
            Kynkäänniemi et al. use 3.

    Raises:
        RefusedInput: `nearest` is below 1.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import PrecisionRecallDensityCoverage
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> prdc = PrecisionRecallDensityCoverage(DigitsExtractor())
        >>> images = torch.randint(0, 256, (40, 1, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        >>> prdc.update(images, real=True)
        >>> prdc.update(images[:20], real=False)
        >>> {name: round(value.item(), 2) for name, value in prdc.compute().items()}["precision"]
        1.0
    """

    higher_is_better = True
    directions = {"precision": "max", "recall": "max", "density": "max", "coverage": "max"}

    def __init__(self, feature: nn.Module | None = None, nearest: int = 5, **kwargs: Any) -> None:
        refuse_below(1, nearest=nearest)
        super().__init__(feature, **kwargs)
        self.nearest = nearest

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        fewest = min(num_real, num_fake)
        if fewest > self.nearest:
            return None
        return (
            f"{fewest} images are too few for nearest={self.nearest}: use more than {self.nearest} images"
            " (metrics.num_samples), or set a smaller metrics.scores.prdc.nearest."
        )

    def compute(self) -> dict[str, Float64[Tensor, ""]]:
        """Returns precision, recall, density and coverage.

        Raises:
            RefusedInput: the number of images does not exceed `nearest`.
        """
        real, fake = self.stored()
        radii = self.of_real(real, lambda rows: squared_radii(rows, self.nearest))
        values = manifold_scores(real, fake, self.nearest, radii)
        return {name: torch.tensor(value, dtype=torch.float64, device=self.device) for name, value in values.items()}
