"""Kernel Inception Distance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.metrics.scores.score import Score, needed, smaller
from lit_gans.metrics.statistics import Summary

_DEGREE = 3


def squared_mmd(real: Float[Tensor, "m f"], fake: Float[Tensor, "m f"]) -> float:
    """Computes the unbiased estimate of the squared maximum mean discrepancy with the kernel (x.y / f + 1)^3
    (Bińkowski et al. 2018, section 4; Gretton et al. 2012, equation 3).
    """
    num, width = real.shape
    within = 0.0
    for features in (real, fake):
        kernel = (features @ features.T / width + 1) ** _DEGREE
        within += (kernel.sum() - kernel.trace()).item() / (num * (num - 1))
    return within - 2 * ((real @ fake.T / width + 1) ** _DEGREE).mean().item()


def kernel_distances(
    real: Float[Tensor, "n f"], fake: Float[Tensor, "k f"], subsets: Iterable[tuple[Tensor, Tensor]]
) -> Float[Tensor, " subsets"]:
    """Computes the squared MMD of each pair of index sets."""
    pairs = ((real[one].double(), fake[two].double()) for one, two in subsets)
    return torch.tensor([squared_mmd(*pair) for pair in pairs], dtype=torch.float64)


@dataclass(frozen=True)
class KID(Score):
    """Kernel Inception Distance (Bińkowski et al. 2018): mean and spread of the squared MMD of random subsets.

    Subsets are drawn without replacement; the spread is the standard deviation normalised by n.

    Args:
        subsets: number of pairs of subsets.
        subset_size: number of images in each subset.

    Raises:
        RefusedInput: `subsets` is below 1 or `subset_size` below 2.
    """

    needs_features = True
    directions = {"kid": "min", "kid_spread": None}

    subsets: int = 100
    subset_size: int = 1000

    def __post_init__(self) -> None:
        if self.subsets < 1 or self.subset_size < 2:
            raise RefusedInput(f"subsets={self.subsets} must be at least 1 and subset_size={self.subset_size} 2.")

    def too_few(self, num_real: int | None, num_fake: int) -> str | None:
        fewest = smaller(num_real, num_fake)
        if fewest >= self.subset_size:
            return None
        return (
            f"{fewest} images are too few for subset_size={self.subset_size}: use more images (metrics.num_samples),"
            " or a smaller metrics.kid.subset_size."
        )

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(mix(seed, "kernel distance"))

        def subset(num: int) -> Tensor:
            return torch.randperm(num, generator=generator)[: self.subset_size]

        draws = ((subset(real.num), subset(fake.num)) for _ in range(self.subsets))
        distances = kernel_distances(needed(real.features), needed(fake.features), draws)
        return {"kid": distances.mean().item(), "kid_spread": distances.std(correction=0).item()}
