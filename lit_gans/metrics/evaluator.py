"""All scores of generated images against real ones from one pass of an extractor."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8 as to_uint8
from lit_gans.metrics.cache import Reference, cached
from lit_gans.metrics.extractors.base import Extractor, on_white
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FID, frechet_distance
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.score import Score
from lit_gans.metrics.statistics import Statistics


class Evaluation:
    """Compares generated images with real ones by an extractor's features.

    On several ranks each brings its share of the images, perhaps none; the values are those of all of them.

    Args:
        extractor: the features; its name ends the keys.
        device: where the extractor runs.
        seed: of splits and subsets.
        scores: what is measured; those that the extractor cannot serve are left out.
    """

    def __init__(
        self,
        extractor: Extractor,
        device: torch.device,
        seed: int = 0,
        scores: Sequence[Score] = (FID(), InceptionScore(), ClassCoverage()),
    ) -> None:
        self.extractor, self.device, self.seed = extractor.to(device), device, seed
        self.scores = [score for score in scores if score.applies(extractor)]
        self.keeps_features = any(score.needs_features for score in self.scores)
        self.keeps_logits = any(score.needs_logits for score in self.scores)
        self.fits_gaussians = any(score.needs_covariance for score in self.scores)
        self._reference: Reference | None = None
        self._warned = False

    def add_real(self, batches: Iterable[Tensor], cache: Path | None = None) -> None:
        """Takes in the real images, uint8 (n, c, h, w), once; every second image makes one of the two halves.

        Args:
            batches: this rank's; the ranks take the batches in turn.
            cache: file of their statistics: read where it is there, else written.
        """
        self._reference = cached(cache, lambda: self._statistics_of(batches), self.keeps_features)

    @torch.no_grad()
    def _statistics_of(self, batches: Iterable[Tensor]) -> Reference:
        whole, even, odd = Statistics(self.keeps_features), Statistics(), Statistics()
        for images in batches:
            features, logits = self._extract(images)
            first, second = (even, odd) if whole.num % 2 == 0 else (odd, even)
            whole.add(features, logits)
            if not self.fits_gaussians:
                continue
            first.add(features[::2], logits[::2])
            second.add(features[1::2], logits[1::2])
        halves = frechet_distance(even.summary(), odd.summary()) if self.fits_gaussians else float("nan")
        return Reference(whole.summary(in_turn=True), halves)

    def _extract(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
            raise RefusedInput(
                f"images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " lit_gans.data.images.to_uint8 makes them of floats in [0, 1]."
            )
        images = images.to(self.device)
        return self.extractor(on_white(images) if images.shape[1] == 4 else images)

    @property
    def has_reference(self) -> bool:
        """Whether the real images are in."""
        return self._reference is not None

    @property
    def num_real(self) -> int:
        """How many real images there are on all ranks together."""
        return self._reference.summary.num

    def real_halves(self) -> float:
        """Returns the FID between two halves of the real images: what a perfect generator could reach.

        It is not a number where no score fits Gaussians.
        """
        return self._reference.halves

    def kept_bytes(self, num_fake: int) -> int:
        """Returns the bytes of main memory that features and logits of single images take, on each rank at the end."""
        features = self.extractor.num_features * (self.num_real + num_fake) if self.keeps_features else 0
        logits = getattr(self.extractor, "num_logits", self.extractor.num_classes) * num_fake * self.keeps_logits
        return 4 * (features + logits)

    @torch.no_grad()
    def measure(self, batches: Iterable[Tensor], num: int) -> dict[str, float]:
        """Returns the metrics of generated images.

        Args:
            batches: this rank's images, uint8 (n, c, h, w): one part of all of them.
            num: how many images there are on all ranks together.

        Raises:
            RefusedInput: too few images for a score.
        """
        for score in self.scores:
            score.refuse(self.num_real, num)
        statistics = Statistics(self.keeps_features, self.keeps_logits)
        for images in batches:
            statistics.add(*self._extract(images))
        fake, real = statistics.summary(), self._reference.summary
        if fake.num != num:
            raise RefusedInput(f"{fake.num} images came, {num} were announced.")
        if fake.mean.shape != real.mean.shape:
            raise RefusedInput("the reference has another number of features than the extractor.")
        self._warn_of_few(min(real.num, fake.num), len(fake.mean))
        values: dict[str, float] = {}
        for score in self.scores:
            keys = score.keys(self.extractor)
            values |= {keys[name]: value for name, value in score.compute(real, fake, self.seed).items()}
        return values

    def _warn_of_few(self, num: int, num_features: int) -> None:
        if self.fits_gaussians and num <= num_features and not self._warned:
            self._warned = True
            warnings.warn(
                f"{num} images are not more than the {num_features} features: covariances have no full rank and the FID"
                " is far too large to compare with that of more images.",
                stacklevel=2,
            )
