"""Class scores: number of classes that generated images cover, and agreement of images with their requested class."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.data.class_frequencies import in_proportion
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.base import Compared, FeatureScore
from lit_gans.metrics.scores.fid import Gaussian, frechet_distance


class ClassCoverage(FeatureScore):
    """Number of classes that have enough confidently classified samples.

    The logits of the extractor must correspond to the classes of the data. `compute` returns a scalar. See
    `FeatureScore` for further arguments.

    Args:
        confidence: minimum probability of the most likely class, in [0, 1], for a sample to be counted.
        share: minimum number of samples of a class that counts as covered, in [0, 1], as a fraction of the number that
            each class has if all are equally frequent.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import ClassCoverage
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> coverage = ClassCoverage(DigitsExtractor())
        >>> coverage.update(torch.zeros(40, 1, 32, 32, dtype=torch.uint8))
        >>> coverage.compute() <= 1  # images of one kind
        tensor(True)
    """

    needs_logits = needs_known_classes = higher_is_better = True
    with_extractor = False
    directions = {"classes_covered": "max"}

    fake_class_counts: Tensor
    fake_num: Tensor

    def __init__(
        self, feature: nn.Module | None = None, confidence: float = 0.9, share: float = 0.2, **kwargs: Any
    ) -> None:
        super().__init__(feature, **kwargs)
        for name, value in {"confidence": confidence, "share": share}.items():
            if not 0 <= value <= 1:
                raise RefusedInput(f"{name}={value} must be in [0, 1].")
        self.confidence, self.share = confidence, share

    def add_states(self) -> None:
        self.add_state("fake_class_counts", torch.zeros(self.widths.logits, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("fake_num", torch.tensor(0), dist_reduce_fx="sum")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        if real:
            return
        probability, label = logits.softmax(1).max(1)
        confident = label[probability >= self.confidence]
        self.fake_class_counts += confident.bincount(minlength=logits.shape[1])
        self.fake_num += len(logits)

    def compute(self) -> Float[Tensor, ""]:
        """Returns the number of covered classes."""
        num = int(self.fake_num)
        self.refuse_too_few(math.inf, num)
        counts = self.fake_class_counts.cpu().double()  # on the CPU, because MPS does not support float64
        return (counts >= self.share * num / len(counts)).sum().float().to(self.device)

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        return None if num_fake else "there are no generated images."


class LabeledScore(FeatureScore):
    """Base class of scores for generators with classes.

    Subclasses define `update_labeled` instead of `update_features`. See `FeatureScore` for the arguments.

    Attributes:
        needs_real_labels: whether the score also requires the classes of real images.
    """

    needs_classes = True
    needs_real_labels: ClassVar[bool] = True

    def update(self, imgs: Tensor | Features, real: bool = False, labels: Int64[Tensor, " n"] | None = None) -> None:
        """Adds images.

        Args:
            imgs, real: see `FeatureScore.update`.
            labels: class of each image. For a generated image, this is the class for which it was generated.

        Raises:
            RefusedInput: the number of classes differs from the number of images, or a class is out of range. See also
                `FeatureScore.update`.
        """
        if real and not self.needs_real_labels:
            return
        extracted = self.extracted(imgs)
        self.update_labeled(extracted, real, self._checked(labels, len(extracted.features)).to(self.device))

    def _checked(self, labels: Tensor | None, num: int) -> Tensor:
        name = type(self).__name__
        labels = torch.empty(0, dtype=torch.int64) if labels is None and num == 0 else labels
        if labels is None or len(labels) != num:
            received = "none" if labels is None else len(labels)
            raise RefusedInput(f"{name}: expected the classes of {num} images, received {received}: pass labels=.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_labels:
            low, high = int(labels.min()), int(labels.max())
            if not self.num_labels:
                raise RefusedInput(f"{name}: the number of classes is unknown: pass num_classes=.")
            raise RefusedInput(f"{name}: labels range from {low} to {high}, expected 0 to {self.num_labels - 1}.")
        return labels

    def unmeasurable(self, compared: Compared) -> str | None:
        reason = super().unmeasurable(compared)
        if reason is not None or not self.needs_real_labels:
            return reason
        if compared.labels is None:
            return "the real images have no classes."
        last, num_classes = int(compared.labels.max()), compared.widths.classes
        too_many = f"the classes of the real images range up to {last}, but the generator has {num_classes} classes."
        return too_many if last >= num_classes else None

    @property
    def num_labels(self) -> int:
        """Number of classes."""
        raise NotImplementedError

    def update_labeled(self, extracted: Features, real: bool, labels: Int64[Tensor, " n"]) -> None:
        """Adds the features, class logits and classes of images to the states."""
        raise NotImplementedError


class ClassAccuracy(LabeledScore):
    """Fraction of generated images, in [0, 1], that the extractor assigns to the requested class.

    The logits of the extractor must correspond to the classes of the data. A generator that draws only a single image
    per class can also reach 1; `IntraFID` detects this. See `FeatureScore` for the arguments. `compute` returns a
    dictionary of scalars:

    - `class_accuracy`: the fraction.
    - `class_accuracy_lowest`: the smallest fraction within a class that was requested.

    Examples:
        >>> from lit_gans.data.sources.digits import Digits
        >>> from lit_gans.metrics import ClassAccuracy
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> accuracy, digits = ClassAccuracy(DigitsExtractor()), Digits().dataset
        >>> accuracy.update(digits.images[:100], labels=digits.labels[:100])
        >>> accuracy.compute()["class_accuracy"] > 0.9
        tensor(True)
        >>> accuracy.reset()
        >>> accuracy.update(digits.images[:100], labels=9 - digits.labels[:100])
        >>> accuracy.compute()["class_accuracy"] < 0.1
        tensor(True)
    """

    needs_logits = needs_known_classes = True
    needs_real_labels = False
    higher_is_better = True
    directions = {"class_accuracy": "max", "class_accuracy_lowest": "max"}

    fake_correct: Tensor
    fake_num: Tensor

    @property
    def num_labels(self) -> int:
        return self.widths.logits

    def unmeasurable(self, compared: Compared) -> str | None:
        known, generated = compared.widths.logits, compared.widths.classes
        reason = (
            f"the extractor has {known} classes, but the generator has {generated}." if known != generated else None
        )
        return super().unmeasurable(compared) or reason

    def add_states(self) -> None:
        for name in ("fake_correct", "fake_num"):
            self.add_state(name, torch.zeros(self.widths.logits, dtype=torch.long), dist_reduce_fx="sum")

    def update_labeled(self, extracted: Features, real: bool, labels: Int64[Tensor, " n"]) -> None:
        correct = labels[extracted.logits.argmax(1) == labels]
        self.fake_correct += correct.bincount(minlength=self.num_labels)
        self.fake_num += labels.bincount(minlength=self.num_labels)

    def compute(self) -> dict[str, Float64[Tensor, ""]]:
        """Returns the fractions by name, or NaN if there are no images."""
        correct, num = self.fake_correct.cpu().double(), self.fake_num.cpu()  # MPS does not support float64
        of_classes = (correct / num)[num > 0]
        lowest = of_classes.min() if len(of_classes) else torch.tensor(math.nan, dtype=torch.float64)
        return {"class_accuracy": correct.sum() / num.sum(), "class_accuracy_lowest": lowest}


class IntraFID(LabeledScore):
    """FID within each class, averaged over classes, known as intra-FID (Miyato and Koyama 2018, section 4).

    The value is large for a generator that ignores the requested class, and for a generator that draws a single image
    per class. `compute` returns a scalar. For each class, two (f, f) matrices in float64 are stored, where f is the
    number of features. See `FeatureScore` for further arguments.

    Args:
        num_classes: number of classes. If None, an `Evaluator` sets it.
        rank_deficient: whether to measure the score even if the number of images in a class does not exceed the number
            of features. The value is then far too large.

    Raises:
        RefusedInput: `num_classes` is below 1.

    Examples:
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
        self._real: list[Gaussian] = []  # cached with their matrix square roots while the real images stay the same

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

    def unmeasurable(self, compared: Compared) -> str | None:
        reason = super().unmeasurable(compared)
        if reason is not None or compared.labels is None:
            return reason
        of_fake = in_proportion(compared.labels, compared.num_fake)
        counts = torch.stack([each.bincount(minlength=compared.widths.classes) for each in (compared.labels, of_fake)])
        return self._too_few_in_a_class(int(counts.min()), compared.widths.features)

    def _too_few_in_a_class(self, fewest: int, num_features: int) -> str | None:
        """Returns a message if the smallest class has too few images, otherwise None.

        Args:
            fewest: number of images in the smallest class.
            num_features: number of features.
        """
        if fewest < 2:
            return f"{fewest} image in a class has no covariance: use at least 2 images of each class."
        if fewest <= num_features and not self.rank_deficient:
            return (
                f"{fewest} images in a class are too few for {num_features} features: use more than {num_features}"
                " images of each class (metrics.num_samples), or set metrics.scores.intra_fid.rank_deficient=true."
            )
        return None

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the mean of the distances of all classes.

        Raises:
            RefusedInput: a class has too few real or generated images.
        """
        reason = self._too_few_in_a_class(int(min(self.real_num.min(), self.fake_num.min())), self.widths.features)
        if reason is not None:
            raise RefusedInput(f"{type(self).__name__}: {reason}")
        real = self._gaussians("real")
        self._real = [gaussian.or_equal(known) for gaussian, known in zip(real, self._real or real, strict=True)]
        distances = list(map(frechet_distance, self._real, self._gaussians("fake")))
        return torch.tensor(distances, dtype=torch.float64, device=self.device).mean()

    def _gaussians(self, kind: str) -> list[Gaussian]:
        """Returns the Gaussian that is fitted to the features of each class."""
        states = (self.metric_state[f"{kind}_{name}"] for name in ("num", "features_sum", "features_cov_sum"))
        return [Gaussian.of_sums(int(num), total, products) for num, total, products in zip(*states, strict=True)]
