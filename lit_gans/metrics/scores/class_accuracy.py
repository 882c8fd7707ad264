"""Share of samples that show the class that was asked for, as a torchmetrics `Metric`."""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.extractors.network import Features
from lit_gans.metrics.scores.labeled import Classes, LabeledScore


class ClassAccuracy(LabeledScore):
    """Fraction of generated images, in [0, 1], that the extractor assigns to the class that was asked for.

    Requires an extractor with the data's classes. A generator that draws a single image of each class reaches 1, too:
    see `IntraFID`. `compute` returns a scalar. See `FeatureScore` for the arguments.

    Example:
        >>> from lit_gans.data.sources.digits import Digits
        >>> from lit_gans.metrics import ClassAccuracy
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> accuracy, digits = ClassAccuracy(DigitsExtractor()), Digits().dataset
        >>> accuracy.update(digits.images[:100], labels=digits.labels[:100])
        >>> accuracy.compute() > 0.9
        tensor(True)
        >>> accuracy.reset()
        >>> accuracy.update(digits.images[:100], labels=9 - digits.labels[:100])
        >>> accuracy.compute() < 0.1
        tensor(True)
    """

    needs_logits = True
    needs_real_labels = False
    higher_is_better = True
    plot_upper_bound = 1.0
    directions = {"class_accuracy": "max"}

    fake_correct: Tensor
    fake_num: Tensor

    def applies(self, extractor: Extractor) -> bool:
        return extractor.num_classes > 0

    @property
    def num_labels(self) -> int:
        return self.widths.logits

    def unmeasurable(self, classes: Classes) -> str | None:
        if classes.num and classes.known != classes.num:
            return f"the extractor knows {classes.known} classes, the generator has {classes.num}."
        return super().unmeasurable(classes)

    def add_states(self) -> None:
        for name in ("fake_correct", "fake_num"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update_labeled(self, extracted: Features, real: bool, labels: Int64[Tensor, " n"]) -> None:
        self.accumulate("fake_correct", (extracted.logits.argmax(1) == labels).sum())
        self.accumulate("fake_num", torch.tensor(len(labels), device=labels.device))

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the fraction.

        Raises:
            RefusedInput: there are no generated images.
        """
        if not self.fake_num:
            raise RefusedInput("ClassAccuracy: there are no generated images.")
        return self.fake_correct.double() / self.fake_num
