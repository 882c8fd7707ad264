"""CLIP Maximum Mean Discrepancy."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.nn.functional import normalize

from lit_gans.common.errors import refuse_not_positive
from lit_gans.metrics.scores.base import StoredFeatures

_SCALE = 1000  # factor with which the paper reports values
_ROWS = 1024  # number of rows of the kernel matrix in memory at once


def mean_kernel(one: Float64[Tensor, "n f"], two: Float64[Tensor, "k f"], sigma: float) -> Float64[Tensor, ""]:
    """Computes the mean of the kernel exp(-|x - y|^2 / (2 sigma^2)) over all pairs of rows."""
    squares = two.square().sum(1)
    total = torch.zeros((), dtype=torch.float64)
    for rows in one.split(_ROWS):
        distances = rows.square().sum(1, keepdim=True) + squares - 2 * rows @ two.T
        total += distances.div_(-2 * sigma**2).exp_().sum()
    return total / (len(one) * len(two))


class CMMD(StoredFeatures):
    """CLIP Maximum Mean Discrepancy (Jayasumana et al. 2024), 1,000 times the squared MMD with a Gaussian kernel.

    Features are normalized to unit length. The value is published as CMMD if the extractor is `CLIPExtractor`. It is
    computed in float64. See `FeatureScore` for further arguments.

    Args:
        sigma: bandwidth of the kernel.

    Raises:
        RefusedInput: `sigma` is not positive.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import CMMD
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> cmmd = CMMD(DigitsExtractor())
        >>> images = torch.randint(0, 256, (20, 1, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        >>> cmmd.update(images, real=True)
        >>> cmmd.update(images // 4, real=False)
        >>> cmmd.compute() > 0
        tensor(True)
    """

    directions = {"cmmd": "min"}

    def __init__(self, feature: nn.Module | None = None, sigma: float = 10.0, **kwargs: Any) -> None:
        refuse_not_positive(sigma=sigma)
        super().__init__(feature, **kwargs)
        self.sigma = sigma

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        return None if min(num_real, num_fake) >= 1 else "there are no images: use at least 1."

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the value.

        The estimate of the MMD is biased: it includes the pairs of an image with itself (Gretton et al. 2012,
        equation 5).

        Raises:
            RefusedInput: there are no real or no generated images.
        """
        features, fake = self.stored()
        real, fake = normalize(features.double()), normalize(fake.double())
        within_real = self.of_real(features, lambda _: mean_kernel(real, real, self.sigma))
        within_fake, between = mean_kernel(fake, fake, self.sigma), mean_kernel(real, fake, self.sigma)
        return (_SCALE * (within_real + within_fake - 2 * between)).to(self.device)
