"""Precision, recall, density and coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.score import Score
from lit_gans.metrics.statistics import Summary

_ROWS = 1024  # of the matrix of distances at once: memory is that of so many rows


def manifold_scores(real: Float[Tensor, "n f"], fake: Float[Tensor, "k f"], nearest: int) -> dict[str, float]:
    """Returns precision and recall (Kynkäänniemi et al. 2019), density and coverage (Naeem et al. 2020, equations
    4 and 5), of balls around each image that reach to its `nearest`-th neighbour of the same kind.
    """
    real, fake = real.double(), fake.double()
    real_radii, fake_radii = _radii(real, nearest), _radii(fake, nearest)
    in_a_real_ball = torch.zeros(len(fake), device=fake.device)
    recalled = covered = 0
    for start, distances in _distances(real, fake):
        radii = real_radii[start : start + len(distances), None]
        in_a_real_ball += (distances < radii).sum(0)
        recalled += (distances < fake_radii).any(1).sum().item()
        covered += (distances.min(1, keepdim=True).values < radii).sum().item()
    return {
        "precision": (in_a_real_ball > 0).double().mean().item(),
        "recall": recalled / len(real),
        "density": in_a_real_ball.double().mean().item() / nearest,
        "coverage": covered / len(real),
    }


def _distances(one: Tensor, two: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields the first row of each slab of the squared distances, and the slab."""
    squares = two.square().sum(1)
    for start in range(0, len(one), _ROWS):
        rows = one[start : start + _ROWS]
        yield start, (rows.square().sum(1, keepdim=True) + squares - 2 * rows @ two.T).clamp_(min=0)


def _radii(features: Tensor, nearest: int) -> Tensor:
    """Returns the squared distance of each row to its `nearest`-th neighbour; the first of `nearest` + 1 is itself."""
    return torch.cat([slab.kthvalue(nearest + 1, dim=1).values for _, slab in _distances(features, features)])


@dataclass(frozen=True)
class PRDC(Score):
    """Precision and density say how real the samples are, recall and coverage how much of the data they reach.

    Args:
        nearest: the neighbour that a ball reaches to; 5 in Naeem et al., 3 in Kynkäänniemi et al.

    Raises:
        RefusedInput: `nearest` below 1.
    """

    needs_features = True
    directions = {"precision": "max", "recall": "max", "density": "max", "coverage": "max"}

    nearest: int = 5

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise RefusedInput(f"nearest={self.nearest} must be at least 1.")

    def refuse(self, num_real: int | None, num_fake: int) -> None:
        fewest = num_fake if num_real is None else min(num_real, num_fake)
        if fewest <= self.nearest:
            raise RefusedInput(f"{fewest} images have no {self.nearest}-th neighbour: use more than {self.nearest}.")

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        return manifold_scores(real.features, fake.features, self.nearest)
