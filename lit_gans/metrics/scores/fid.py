"""Fréchet Inception Distance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lit_gans.metrics.scores.base import FeatureScore

_NOISE = 1e-12  # relative to the largest eigenvalue: smaller ones are rounding errors of a rank-deficient covariance

_ROWS = 1024  # number of rows in float64 at once


@dataclass(frozen=True)
class Gaussian:
    """Gaussian fitted to features, in main memory.

    Args:
        mean: mean of the features.
        covariance: covariance of the features, normalized by n - 1.
    """

    mean: Float64[Tensor, " f"]
    covariance: Float64[Tensor, "f f"]

    @staticmethod
    def of_sums(num: int, total: Float64[Tensor, " f"], products: Float64[Tensor, "f f"]) -> Gaussian:
        """Returns the Gaussian of `num` images from the sum of their features and of the outer products of these."""
        mean = total / num
        return Gaussian(mean.cpu(), ((products - num * torch.outer(mean, mean)) / (num - 1)).cpu())

    @staticmethod
    def of_rows(rows: Float[Tensor, "n f"]) -> Gaussian:
        """Returns the Gaussian of features."""
        total, products = torch.zeros(rows.shape[1]).double(), torch.zeros(rows.shape[1], rows.shape[1]).double()
        for block in map(torch.Tensor.double, rows.split(_ROWS)):
            total += block.sum(0)
            products += block.T @ block
        return Gaussian.of_sums(len(rows), total, products)

    @cached_property
    def root(self) -> Float64[Tensor, "f f"]:
        """Symmetric square root of the covariance."""
        # NumPy's solver: torch's threads contend on a busy machine and can take ten times as long
        values, vectors = map(torch.from_numpy, np.linalg.eigh(self.covariance.numpy()))
        return (vectors * _positive(values).sqrt()) @ vectors.T

    def or_equal(self, other: Gaussian | None) -> Gaussian:
        """Returns the other Gaussian, whose root may be known, if both are equal."""
        if other is None or not torch.equal(self.mean, other.mean):
            return self
        return other if torch.equal(self.covariance, other.covariance) else self


def _positive(values: Float64[Tensor, " f"]) -> Float64[Tensor, " f"]:
    """Sets eigenvalues that are rounding errors to 0, since their square roots would not be small."""
    return torch.where(values > _NOISE * values.abs().max(), values, 0)


def frechet_distance(real: Gaussian, fake: Gaussian) -> float:
    """Computes the squared Fréchet distance between two Gaussians (Dowson and Landau 1982, equation 4).

    The trace of sqrt(A B) equals the trace of sqrt(sqrt(A) B sqrt(A)). The latter is symmetric, so that its eigenvalues
    are real and several times faster to compute than those of A B.
    """
    product = real.root @ fake.covariance @ real.root
    values = torch.from_numpy(np.linalg.eigvalsh(((product + product.T) / 2).numpy()))
    distance = (real.mean - fake.mean).square().sum() + real.covariance.trace() + fake.covariance.trace()
    return (distance - 2 * _positive(values).sqrt().sum()).item()


class FrechetInceptionDistance(FeatureScore):
    """Fréchet distance between Gaussians fitted to the features (Heusel et al. 2017, equation 6).

    Moments are streamed in float64, covariances normalized by n - 1. `compute` returns a scalar. See `FeatureScore`
    for the arguments.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import FrechetInceptionDistance
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> fid = FrechetInceptionDistance(DigitsExtractor())
        >>> images = torch.randint(0, 256, (100, 1, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        >>> fid.update(images, real=True)
        >>> fid.update(images // 4, real=False)
        >>> fid.compute() > 1
        tensor(True)
    """

    needs_covariance = True
    directions = {"fid": "min"}

    _real: Gaussian | None = None  # with its root, as long as the real images stay the same

    def add_states(self) -> None:
        width = self.widths.features
        for kind in ("real", "fake"):
            self.add_state(f"{kind}_features_sum", torch.zeros(width).double(), dist_reduce_fx="sum")
            self.add_state(f"{kind}_features_cov_sum", torch.zeros(width, width).double(), dist_reduce_fx="sum")
            self.add_state(f"{kind}_features_num_samples", torch.tensor(0), dist_reduce_fx="sum")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        wide = features.double()
        num, total, products = self._states("real" if real else "fake")
        num.add_(len(wide))
        total.add_(wide.sum(0))
        products.add_(wide.T @ wide)

    def _states(self, kind: str) -> list[Tensor]:
        """Returns number, sum and sum of outer products of the features."""
        states: dict[str, Any] = self.metric_state
        return [states[f"{kind}_features_{name}"] for name in ("num_samples", "sum", "cov_sum")]

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the distance.

        Raises:
            RefusedInput: there are fewer than two real or two generated images.
        """
        sums = self._states("real"), self._states("fake")
        self.refuse_too_few(*(int(num) for num, *_ in sums))
        real, fake = (Gaussian.of_sums(int(num), total, products) for num, total, products in sums)
        self._real = real.or_equal(self._real)
        return torch.tensor(frechet_distance(self._real, fake), dtype=torch.float64, device=self.device)
