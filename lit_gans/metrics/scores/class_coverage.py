"""Number of classes of the data that the samples cover, as a torchmetrics `Metric`."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.base import FeatureScore


class ClassCoverage(FeatureScore):
    """Number of classes with enough confidently classified samples; requires an extractor with the data's classes.

    `compute` returns a scalar. See `FeatureScore` for further arguments.

    Args:
        confidence: smallest probability, in [0, 1], with which a sample counts for its class.
        share: smallest fraction of all samples, in [0, 1], for which a class counts as covered.

    Example:
        >>> import torch
        >>> from lit_gans.metrics import ClassCoverage
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> coverage = ClassCoverage(DigitsExtractor())
        >>> coverage.update(torch.zeros(40, 1, 32, 32, dtype=torch.uint8))
        >>> coverage.compute() <= 1  # images of one kind
        tensor(True)
    """

    needs_logits = higher_is_better = True
    with_extractor = False
    directions = {"classes_covered": "max"}

    fake_class_counts: Tensor
    fake_num: Tensor

    def __init__(
        self, feature: nn.Module | None = None, confidence: float = 0.9, share: float = 0.02, **kwargs: Any
    ) -> None:
        super().__init__(feature, **kwargs)
        self.confidence, self.share = confidence, share

    def applies(self, extractor: Extractor) -> bool:
        return extractor.num_classes > 0

    def add_states(self) -> None:
        self.add_state("fake_class_counts", torch.zeros(self.widths.logits, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("fake_num", torch.tensor(0), dist_reduce_fx="sum")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        if real:
            return
        probability, label = logits.softmax(1).max(1)
        confident = label[probability >= self.confidence]
        self.accumulate("fake_class_counts", confident.bincount(minlength=logits.shape[1]))
        self.accumulate("fake_num", torch.tensor(len(logits), device=logits.device))

    def compute(self) -> Float[Tensor, ""]:
        """Returns the number of covered classes."""
        return (self.fake_class_counts >= self.share * self.fake_num).sum().float()
