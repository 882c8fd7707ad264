"""Base class of scores that need the classes of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int64
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.network import Features
from lit_gans.metrics.scores.base import FeatureScore


@dataclass(frozen=True)
class Classes:
    """Classes of the images that a score compares.

    Args:
        num: number of classes that generated images are asked for, in turn; 0 without classes.
        known: number of classes that the extractor knows, 0 if these are not those of the data.
        num_fake: number of generated images.
        num_features: number of features of the extractor.
        real: class of each real image; None without classes.
    """

    num: int
    known: int
    num_fake: int
    num_features: int
    real: Int64[Tensor, " n"] | None


class LabeledScore(FeatureScore):
    """Score of a generator with classes; subclasses define `update_labeled` instead of `update_features`.

    See `FeatureScore` for the arguments.

    Attributes:
        needs_real_labels: whether the score requires the classes of real images too.
    """

    needs_real_labels: ClassVar[bool] = True

    def update(self, imgs: Tensor | Features, real: bool = False, labels: Int64[Tensor, " n"] | None = None) -> None:
        """Adds images.

        Args:
            imgs, real: see `FeatureScore.update`.
            labels: class of each image; of a generated image, the class that was asked for.

        Raises:
            RefusedInput: see `FeatureScore.update`; or not one class for each image, or unknown classes.
        """
        if real and not self.needs_real_labels:
            return
        extracted = self.extracted(imgs)
        self.update_labeled(extracted, real, self._checked(labels, len(extracted.features)).to(self.device))

    def _checked(self, labels: Tensor | None, num: int) -> Tensor:
        name = type(self).__name__
        labels = torch.empty(0, dtype=torch.int64) if labels is None and num == 0 else labels
        if labels is None or len(labels) != num:
            found = "none" if labels is None else len(labels)
            raise RefusedInput(f"{name}: expected the classes of {num} images, received {found}: give labels=.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_labels:
            found = f"{int(labels.min())} to {int(labels.max())}"
            raise RefusedInput(f"{name}: labels are {found}, expected 0 to {self.num_labels - 1}.")
        return labels

    def unmeasurable(self, classes: Classes) -> str | None:
        """Returns why the score cannot be measured, or None if it can."""
        if not classes.num:
            return "the generator has no classes."
        if self.needs_real_labels and classes.real is None:
            return "the real images have no classes."
        if self.needs_real_labels and classes.real is not None and int(classes.real.max()) >= classes.num:
            return f"the real images have classes up to {int(classes.real.max())}, the generator has {classes.num}."
        return None

    @property
    def num_labels(self) -> int:
        """Number of classes."""
        raise NotImplementedError

    def update_labeled(self, extracted: Features, real: bool, labels: Int64[Tensor, " n"]) -> None:
        """Adds the features, class logits and classes of images to the states."""
        raise NotImplementedError


def with_labels(batches: Iterable[Tensor], labels: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yields batches of images, each with its rows of the labels, or with None if there are no labels."""
    start = 0
    for images in batches:
        yield images, None if labels is None else labels[start : start + len(images)]
        start += len(images)
