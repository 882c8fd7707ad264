"""FID inside each class, as a torchmetrics `Metric`."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.metrics.extractors.network import Features
from lit_gans.metrics.scores.fid import Gaussian, frechet_distance
from lit_gans.metrics.scores.labeled import Classes, LabeledScore


class IntraFID(LabeledScore):
    """Mean over classes of the FID inside each class, intra-FID (Miyato and Koyama 2018, section 4).

    Large for a generator that ignores the class that is asked for, and for one that draws a single image of each class.
    `compute` returns a scalar. Requires the memory of two (f, f) matrices in float64 for each class. See `FeatureScore`
    for further arguments.

    Args:
        num_classes: number of classes; None leaves it to an `Evaluator`.
        rank_deficient: whether to measure classes with no more images than features, whose covariances do not have full
            rank, so that values are far too large to compare with those of more images.

    Raises:
        RefusedInput: `num_classes` is below 1.

    Example:
        >>> from lit_gans.data.sources.digits import Digits
        >>> from lit_gans.metrics import IntraFID
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> intra_fid, digits = IntraFID(DigitsExtractor(), num_classes=10), Digits().dataset
        >>> intra_fid.update(digits.images[::2], real=True, labels=digits.labels[::2])
        >>> intra_fid.update(digits.images[1::2], real=False, labels=digits.labels[1::2])
        >>> perfect = intra_fid.compute()
        >>> intra_fid.update(digits.images, real=False, labels=9 - digits.labels)
        >>> intra_fid.compute() > 10 * perfect
        tensor(True)
    """

    needs_covariance = True
    directions = {"intra_fid": "min"}

    real_num: Tensor
    fake_num: Tensor

    def __init__(
        self,
        feature: nn.Module | None = None,
        num_classes: int | None = None,
        rank_deficient: bool = False,
        **kwargs: Any,
    ) -> None:
        refuse_below(1, num_classes=num_classes)
        self.num_classes, self.rank_deficient = num_classes, rank_deficient
        super().__init__(feature, **kwargs)
        self._real: list[Gaussian] = []  # with their roots, as long as the real images stay the same

    @property
    def num_labels(self) -> int:
        return self.num_classes or self.widths.classes

    def add_states(self) -> None:
        classes, features = self.num_labels, self.widths.features
        for kind in ("real", "fake"):
            for name, shape in {"sum": (classes, features), "cov_sum": (classes, features, features)}.items():
                sums = torch.zeros(shape, dtype=torch.float64)
                self.add_state(f"{kind}_features_{name}", sums, dist_reduce_fx="sum")
            self.add_state(f"{kind}_num", torch.zeros(classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update_labeled(self, extracted: Features, real: bool, labels: Int64[Tensor, " n"]) -> None:
        kind, wide = "real" if real else "fake", extracted.features.double()
        state = self.metric_state
        for label in labels.unique().tolist():
            rows = wide[labels == label]
            state[f"{kind}_features_sum"][label] += rows.sum(0)
            state[f"{kind}_features_cov_sum"][label] += rows.T @ rows
            state[f"{kind}_num"][label] += len(rows)

    def unmeasurable(self, classes: Classes) -> str | None:
        reason = super().unmeasurable(classes)
        if reason is not None or classes.real is None:
            return reason
        fewest_real = int(classes.real.bincount(minlength=classes.num).min())
        return self._too_few(min(fewest_real, classes.num_fake // classes.num), classes.num_features)

    def _too_few(self, fewest: int, num_features: int) -> str | None:
        """Returns why the images of the class with the fewest are too few, or None if they are enough."""
        if fewest < 2:
            return f"{fewest} image in a class has no covariance: use at least 2 of each class."
        if fewest <= num_features and not self.rank_deficient:
            return (
                f"{fewest} images in a class are too few for {num_features} features: use more than {num_features} of"
                " each class (metrics.num_samples), or metrics.scores.intra_fid.rank_deficient=true."
            )
        return None

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the mean distance.

        Raises:
            RefusedInput: a class has too few real or generated images.
        """
        reason = self._too_few(int(min(self.real_num.min(), self.fake_num.min())), self.widths.features)
        if reason is not None:
            raise RefusedInput(f"{type(self).__name__}: {reason}")
        real = self._gaussians("real")
        self._real = [gaussian.or_equal(known) for gaussian, known in zip(real, self._real or real, strict=True)]
        distances = list(map(frechet_distance, self._real, self._gaussians("fake")))
        return torch.tensor(distances, dtype=torch.float64, device=self.device).mean()

    def _gaussians(self, kind: str) -> list[Gaussian]:
        """Returns the Gaussian of each class."""
        states = (self.metric_state[f"{kind}_{name}"] for name in ("num", "features_sum", "features_cov_sum"))
        return [Gaussian.of_sums(int(num), total, products) for num, total, products in zip(*states, strict=True)]
