"""Fréchet Inception Distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lit_gans.metrics.scores.score import Score
from lit_gans.metrics.statistics import Summary, positive


def frechet_distance(real: Summary, fake: Summary) -> float:
    """Computes the squared Fréchet distance between two Gaussians (Dowson and Landau 1982, equation 4).

    The trace of sqrt(A B) equals the trace of sqrt(sqrt(A) B sqrt(A)). The latter is symmetric, so that its eigenvalues
    are real and several times faster to compute than those of A B.
    """
    product = real.root @ fake.covariance @ real.root
    values = torch.from_numpy(np.linalg.eigvalsh(((product + product.T) / 2).numpy()))
    distance = (real.mean - fake.mean).square().sum() + real.covariance.trace() + fake.covariance.trace()
    return (distance - 2 * positive(values).sqrt().sum()).item()


@dataclass(frozen=True)
class FID(Score):
    """Fréchet distance between Gaussians fitted to the features (Heusel et al. 2017, equation 6).

    Covariances are normalised by n - 1.
    """

    needs_covariance = True
    directions = {"fid": "min"}

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        return {"fid": frechet_distance(real, fake)}
