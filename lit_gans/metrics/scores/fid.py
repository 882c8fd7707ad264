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

# Eigenvalues below this fraction of the largest eigenvalue are rounding errors of a rank-deficient covariance.
_NOISE = 1e-12

_ROWS = 1024  # number of rows that are converted to float64 at once


@dataclass(frozen=True)
class Gaussian:
    """Gaussian that is fitted to features and stored in main memory.

    Args:
        mean: mean of the features.
        covariance: covariance of the features, normalized by n - 1.
    """

    mean: Float64[Tensor, " f"]
    covariance: Float64[Tensor, "f f"]

    @staticmethod
    def of_sums(num: int, total: Float64[Tensor, " f"], products: Float64[Tensor, "f f"]) -> Gaussian:
        """Fits a Gaussian to `num` features, given the sum of the features and the sum of their outer products."""
        mean = total / num
        return Gaussian(mean.cpu(), ((products - num * torch.outer(mean, mean)) / (num - 1)).cpu())

    @staticmethod
    def of_rows(rows: Float[Tensor, "n f"]) -> Gaussian:
        """Fits a Gaussian to the rows of a feature matrix."""
        total, products = torch.zeros(rows.shape[1]).double(), torch.zeros(rows.shape[1], rows.shape[1]).double()
        for block in map(torch.Tensor.double, rows.split(_ROWS)):
            total += block.sum(0)
            products += block.T @ block
        return Gaussian.of_sums(len(rows), total, products)

    @cached_property
    def root(self) -> Float64[Tensor, "f f"]:
        """Symmetric square root of the covariance."""
        # uses NumPy, because torch's solver can take ten times as long when its threads compete on a busy machine
        values, vectors = map(torch.from_numpy, np.linalg.eigh(self.covariance.numpy()))
        return (vectors * _positive(values).sqrt()) @ vectors.T

    def or_equal(self, other: Gaussian | None) -> Gaussian:
        """Returns `other` if both Gaussians are equal, because its root might be cached; otherwise returns `self`."""
        if other is None or not torch.equal(self.mean, other.mean):
            return self
        return other if torch.equal(self.covariance, other.covariance) else self


def _positive(values: Float64[Tensor, " f"]) -> Float64[Tensor, " f"]:
    """Sets eigenvalues that are rounding errors to 0, because their square roots would not be negligible."""
    return torch.where(values > _NOISE * values.abs().max(), values, 0)


def frechet_distance(real: Gaussian, fake: Gaussian) -> float:
    """Computes the squared Fréchet distance between two Gaussians (Dowson and Landau 1982, equation 4).

    The trace of sqrt(A B) equals the trace of sqrt(sqrt(A) B sqrt(A)). The matrix sqrt(A) B sqrt(A) is symmetric. Its
    eigenvalues are therefore real, and are computed several times faster than the eigenvalues of A B.
    """
    product = real.root @ fake.covariance @ real.root
    values = torch.from_numpy(np.linalg.eigvalsh(((product + product.T) / 2).numpy()))
    distance = (real.mean - fake.mean).square().sum() + real.covariance.trace() + fake.covariance.trace()
    return (distance - 2 * _positive(values).sqrt().sum()).item()


class FrechetInceptionDistance(FeatureScore):
    """Fréchet Inception Distance (FID) between Gaussians fitted to the features (Heusel et al. 2017, equation 6).

    Sums of features and of their outer products are accumulated in float64, so that features need not be stored.
    Covariances are normalized by n - 1. `compute` returns a scalar. See `FeatureScore` for the arguments.

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

    _real: Gaussian | None = None  # cached with its matrix square root while the real images stay the same

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
        """Returns the number of features, their sum, and the sum of their outer products."""
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
