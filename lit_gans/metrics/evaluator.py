"""Evaluation of generated against real images: all scores from one pass of a feature extractor."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.cache import Reference, cached
from lit_gans.metrics.extractors.base import Extractor, on_white
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FID, frechet_distance
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.score import Score, measurable
from lit_gans.metrics.statistics import Statistics

logger = logging.getLogger(__name__)


class Evaluation:
    """Compares generated with real images by the features of an extractor.

    Each rank adds its share of the images, which may be empty; values are computed from the images of all ranks.

    Args:
        extractor: extractor of features and logits; keys end with its name.
        device: device of the extractor.
        seed: seed of splits and subsets.
        scores: scores to measure; scores that do not apply to the extractor are dropped.

    Attributes:
        scores: scores that are measured.
        left_out: reason why each other score is left out, by class name; see `leave_out`.
        probe_sha256: digest of the features of a noise image, if `widths` has extracted one, otherwise None.
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
        self.left_out: dict[str, str] = {}
        self.probe_sha256: str | None = None
        self._reference: Reference | None = None
        self._warned = False

    @property
    def keeps_features(self) -> bool:
        """Whether a score needs the features of single images."""
        return any(score.needs_features for score in self.scores)

    @property
    def keeps_logits(self) -> bool:
        """Whether a score needs the logits of single images."""
        return any(score.needs_logits for score in self.scores)

    @property
    def fits_gaussians(self) -> bool:
        """Whether a score needs means and covariances."""
        return any(score.needs_covariance for score in self.scores)

    def leave_out(self, num_real: int, num_fake: int, shape: Sequence[int]) -> None:
        """Leaves out scores that need more images or class logits; must be called before `add_real`.

        Args:
            num_real, num_fake: number of images on all ranks.
            shape: channels, height and width of the images.

        Raises:
            RefusedInput: no score is left, with every reason.
        """
        _, num_logits = self.widths(shape)
        self.scores, self.left_out = measurable(self.scores, num_real, num_fake, num_logits)

    def widths(self, shape: Sequence[int]) -> tuple[int, int]:
        """Returns the number of features and logits for images (c, h, w); extracts one image if necessary."""
        num_features, num_logits = self.extractor.num_features, self.extractor.num_logits
        if num_features is None or num_logits is None:
            features, logits = self._probe(shape)
            return features.shape[1], logits.shape[1]
        return num_features, num_logits

    @torch.no_grad()
    def _probe(self, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Extracts a noise image, the same in every run, and stores the digest of its features."""
        generator = torch.Generator().manual_seed(0)
        features, logits = self._extract(torch.randint(256, (1, *shape), generator=generator).to(torch.uint8))
        self.probe_sha256 = hashlib.sha256(features.float().cpu().numpy().data).hexdigest()
        return features, logits

    def kept_bytes(self, num_real: int, num_fake: int, shape: Sequence[int]) -> int:
        """Returns the bytes of main memory that stored features and logits require on each rank.

        Args:
            num_real, num_fake: number of images on all ranks.
            shape: channels, height and width of the images.
        """
        num_features, num_logits = self.widths(shape)
        features = num_features * (num_real + num_fake) if self.keeps_features else 0
        return 4 * (features + (num_logits * num_fake if self.keeps_logits else 0))

    def add_real(self, batches: Iterable[Tensor], cache: Path | None = None) -> None:
        """Adds the real images, uint8 (n, c, h, w), once; images with even and odd indices form two halves.

        Args:
            batches: batches of this rank; batches are distributed over the ranks round-robin.
            cache: path of cached statistics, which are read if they exist and written otherwise.
        """
        self._reference = cached(cache, lambda: self._statistics_of(batches), self.keeps_features)

    @torch.no_grad()
    def _statistics_of(self, batches: Iterable[Tensor]) -> Reference:
        full, even, odd = Statistics(self.keeps_features), Statistics(), Statistics()
        for images in batches:
            features, logits = self._extract(images)
            first, second = (even, odd) if full.num % 2 == 0 else (odd, even)
            full.add(features, logits)
            if not self.fits_gaussians:
                continue
            first.add(features[::2], logits[::2])
            second.add(features[1::2], logits[1::2])
        halves = frechet_distance(even.summary(), odd.summary()) if self.fits_gaussians else float("nan")
        return Reference(full.summary(in_turn=True), halves)

    def _extract(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
            raise RefusedInput(
                f"Images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " lit_gans.data.images.to_uint8 converts floats in [0, 1]."
            )
        images = images.to(self.device)
        return self.extractor(on_white(images) if images.shape[1] == 4 else images)

    @property
    def has_reference(self) -> bool:
        """Whether the real images have been added."""
        return self._reference is not None

    @property
    def reference(self) -> Reference:
        """Statistics of the real images.

        Raises:
            RuntimeError: the real images have not been added.
        """
        if self._reference is None:
            raise RuntimeError("Call Evaluation.add_real() first: there are no real images to compare with.")
        return self._reference

    @property
    def num_real(self) -> int:
        """Number of real images on all ranks."""
        return self.reference.summary.num

    def real_halves(self) -> float:
        """Returns the FID between two halves of the real images, a lower bound in practice; NaN without Gaussians."""
        return self.reference.halves

    @torch.no_grad()
    def measure(self, batches: Iterable[Tensor], num: int) -> dict[str, float]:
        """Computes the metrics of generated images.

        Args:
            batches: images of this rank, uint8 (n, c, h, w), a contiguous share of all images.
            num: number of images on all ranks.

        Raises:
            RefusedInput: there are too few images for a score, or their number differs from `num`.
        """
        for score in self.scores:
            reason = score.too_few(self.num_real, num)
            if reason is not None:
                raise RefusedInput(f"{type(score).__name__}: {reason}")
        statistics = Statistics(self.keeps_features, self.keeps_logits)
        for images in batches:
            statistics.add(*self._extract(images))
        fake, real = statistics.summary(), self.reference.summary
        if fake.num != num:
            raise RefusedInput(f"Expected {num} generated images, received {fake.num}.")
        if fake.mean.shape != real.mean.shape:
            raise RefusedInput(
                f"The real images have {len(real.mean)} features, the generated ones {len(fake.mean)}: use one"
                " extractor for both."
            )
        self._warn_of_few(min(real.num, fake.num), len(fake.mean))
        values: dict[str, float] = {}
        for score in self.scores:
            keys = score.keys(self.extractor)
            values |= {keys[name]: value for name, value in score.compute(real, fake, self.seed).items()}
        return values

    def _warn_of_few(self, num: int, num_features: int) -> None:
        if self.fits_gaussians and num <= num_features and not self._warned:
            self._warned = True
            logger.warning(
                "%d images are no more than the %d features: covariances do not have full rank, and the FID is far too"
                " large to compare with the FID of more images.",
                num,
                num_features,
            )
