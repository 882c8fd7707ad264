"""Kernel Inception Distance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torchmetrics.image.kid import poly_mmd

from lit_gans.common.errors import refuse_below, refuse_not_positive
from lit_gans.common.noise import mix
from lit_gans.metrics.scores.base import StoredFeatures


def kernel_distances(
    real: Float[Tensor, "n f"], fake: Float[Tensor, "k f"], subsets: Iterable[tuple[Tensor, Tensor]], **kernel: Any
) -> Float64[Tensor, " subsets"]:
    """Computes the squared maximum mean discrepancy (MMD) for each pair of index sets.

    The computation uses torchmetrics' unbiased estimate and the kernel (gamma x.y + coef)^degree (Bińkowski et al.
    2018, section 4; Gretton et al. 2012, equation 3).
    """
    return torch.stack([poly_mmd(real[one].double(), fake[two].double(), **kernel) for one, two in subsets])


class KernelInceptionDistance(StoredFeatures):
    """Kernel Inception Distance (Bińkowski et al. 2018): mean and spread of the squared MMD over random subsets.

    Unlike torchmetrics' class, this class draws subsets with a fixed seed, without replacement, and computes in
    float64. The spread is the standard deviation normalized by n. `compute` returns both values as scalars. See
    `FeatureScore` for further arguments.

    Args:
        subsets: number of pairs of subsets.
        subset_size: number of images in each subset.
        degree: degree of the kernel.
        gamma: factor of the dot product in the kernel; None uses 1 / f, where f is the number of features.
        coef: constant that the kernel adds to the dot product.

    Raises:
        RefusedInput: `subsets` or `degree` is below 1, `subset_size` below 2, or `gamma` or `coef` is not positive.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import KernelInceptionDistance
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> kid = KernelInceptionDistance(DigitsExtractor(), subsets=3, subset_size=40)
        >>> images = torch.randint(0, 256, (100, 1, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        >>> kid.update(images, real=True)
        >>> kid.update(images // 4, real=False)
        >>> mean, spread = kid.compute()
        >>> mean > spread
        tensor(True)
    """

    directions = {"kid": "min", "kid_spread": None}

    def __init__(
        self,
        feature: nn.Module | None = None,
        subsets: int = 100,
        subset_size: int = 1000,
        degree: int = 3,
        gamma: float | None = None,
        coef: float = 1.0,
        **kwargs: Any,
    ) -> None:
        refuse_below(1, subsets=subsets, degree=degree)
        refuse_below(2, subset_size=subset_size)
        refuse_not_positive(coef=coef, gamma=gamma)
        super().__init__(feature, **kwargs)
        self.subsets, self.subset_size = subsets, subset_size
        self.degree, self.gamma, self.coef = degree, gamma, coef

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        fewest = min(num_real, num_fake)
        if fewest >= self.subset_size:
            return None
        return (
            f"{fewest} images are too few for subset_size={self.subset_size}: use more images (metrics.num_samples),"
            " or set a smaller metrics.scores.kid.subset_size."
        )

    def compute(self) -> tuple[Float64[Tensor, ""], Float64[Tensor, ""]]:
        """Returns the mean and the spread.

        Raises:
            RefusedInput: there are fewer images than `subset_size`.
        """
        real, fake = self.stored()
        generator = torch.Generator().manual_seed(mix(self.seed, "kernel distance"))

        def subset(num: int) -> Tensor:
            return torch.randperm(num, generator=generator)[: self.subset_size]

        draws = ((subset(len(real)), subset(len(fake))) for _ in range(self.subsets))
        kernel = {"degree": self.degree, "gamma": self.gamma, "coef": self.coef}
        distances = kernel_distances(real, fake, draws, **kernel).to(self.device)
        return distances.mean(), distances.std(correction=0)
