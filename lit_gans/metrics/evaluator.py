"""Evaluation of generated against real images: all scores from one pass of a feature extractor."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torchmetrics import MetricCollection, SumMetric

from lit_gans.common.errors import RefusedInput
from lit_gans.common.rank_zero import computed_once
from lit_gans.data.contracts import Fingerprinted, Labeled, RealImages
from lit_gans.data.digests import fingerprint
from lit_gans.data.reading import cut, images_between
from lit_gans.metrics import cache
from lit_gans.metrics.extractors.base import Extractor, Features, Network, Probe, Widths
from lit_gans.metrics.scores.base import Compared, FeatureScore, gather, place
from lit_gans.metrics.scores.classes import ClassAccuracy, ClassCoverage, IntraFID, LabeledScore
from lit_gans.metrics.scores.fid import FrechetInceptionDistance
from lit_gans.metrics.scores.inception_score import InceptionScore

logger = logging.getLogger(__name__)


class Evaluator:
    """Compares generated with real images by the features of an extractor.

    Each rank adds its share of the generated images, which may be empty, and reads its share of the real ones; values
    are computed from the images of all ranks.

        evaluator = Evaluator(DigitsExtractor(), {"fid": FrechetInceptionDistance()}, num_samples=1000)
        evaluator.add_real(real_images)
        values = evaluator.measure(generated_images)

    Args:
        extractor: extractor of features and logits; keys end with its name.
        scores: scores by name, None for those that are disabled; their copies take the extractor, the seed and the
            device of the evaluator. None measures FID, Inception Score and, where there are classes, the scores of
            these.
        num_samples: number of generated images on all ranks.
        batch_size: number of images extracted at once.
        seed: seed of splits and subsets.
        device: device of the extractor.
        num_classes: number of classes that generated images are asked for; 0 drops the scores that need classes.

    Attributes:
        scores: scores that are measured, by name; `choose` sets them.
        left_out: reason why each other score is left out, by name.
        num_real, shape, data_sha256: number, shape (c, h, w) and digest of the real images.
        labels_sha256: digest of their classes, where a score depends on them; otherwise None.
        real_halves: FID between two halves of the real images, those with even and odd indices, a lower bound in
            practice; NaN if no score fits Gaussians.
        probe: features of a noise image in short, where the extractor does not declare its widths.

    Raises:
        RefusedInput: two scores have the same key.
    """

    def __init__(
        self,
        extractor: Extractor,
        scores: Mapping[str, FeatureScore | None] | None = None,
        num_samples: int = 2500,
        batch_size: int = 250,
        seed: int = 1,
        device: torch.device | str = "cpu",
        num_classes: int = 0,
    ) -> None:
        self._requested = deepcopy(_requested(extractor, scores))  # two evaluators share no states
        self.extractor, self.device = extractor, torch.device(device)
        self.num_samples, self.batch_size, self.seed = num_samples, batch_size, seed
        self.num_classes = num_classes
        self.scores: dict[str, FeatureScore] = {}
        self.left_out: dict[str, str] = {}
        self.num_real, self.data_sha256, self.real_halves = 0, "", math.nan
        self.shape: list[int] = []
        self.probe: Probe | None = None
        self.labels_sha256: str | None = None
        self._network, self._widths, self._warned = Network(extractor), Widths(), False
        self._labels: Tensor | None = None
        self._collection = MetricCollection([])
        self._owners: dict[str, FeatureScore] = {}  # one score of each group that shares its states
        self._num_fake = SumMetric(dist_sync_fn=gather)

    @property
    def directions(self) -> dict[str, str | None]:
        """Whether the best value of each key is the `min` or the `max`; None for neither."""
        scores = self.scores.values()
        return {key: score.directions[name] for score in scores for name, key in score.keys(self.extractor).items()}

    @property
    def fits_gaussians(self) -> bool:
        """Whether a score needs means and covariances."""
        return any(score.needs_covariance for score in self.scores.values())

    def choose(self, real: Tensor | RealImages | Iterator[Tensor], labels: Tensor | None = None) -> None:
        """Identifies the real images, and chooses the scores that images and extractor allow.

        Rank 0 reads all images for their digest, unless the data know it (`lit_gans.data.contracts.Fingerprinted`).
        Every rank must call this method. The other scores are left out, with a reason in `left_out`; scores of classes
        need no reason where the data have none.

        Args:
            real: see `extract`.
            labels: see `add_real`.

        Raises:
            RefusedInput: no score is left, with every reason.
        """
        read = real.real_fingerprint if isinstance(real, Fingerprinted) else lambda: fingerprint(self._batches(real))
        self.data_sha256, self.num_real, self.shape = computed_once(read)
        widths, self.probe = self._network.widths(self.shape)
        self._widths = replace(widths, classes=self.num_classes)
        if labels is None and isinstance(real, Labeled) and real.num_classes:
            labels = real.real_labels()
        compared = Compared(self.num_real, self.num_samples, self._widths, self.extractor.num_classes, labels)
        reasons = {name: score.unmeasurable(compared) for name, score in self._requested.items()}
        self.scores = {name: score for name, score in self._requested.items() if reasons[name] is None}
        if not self.scores:
            sentences = [f"{name}: {reason.rstrip('.')}" for name, reason in reasons.items() if reason]
            raise RefusedInput(f"no score can be measured: {'; '.join(sentences) or 'all of them are null'}.")
        self.left_out = {
            name: reason
            for name, reason in reasons.items()
            if reason is not None and self._requested[name].without_classes(compared) is None
        }
        self._labels = labels if any(isinstance(score, LabeledScore) for score in self.scores.values()) else None
        self.labels_sha256 = None if self._labels is None else fingerprint([self._labels]).sha256
        self._attach()

    def _attach(self) -> None:
        """Gives the scores the extractor; those whose states are equal share them."""
        groups: dict[str, list[str]] = {}
        for name, score in self.scores.items():
            score.reset_real_features, score.seed = False, self.seed
            score.attach(self._network, self._widths)
            score.to(self.device)
            groups.setdefault(score.states_key(), []).append(name)
        self._owners = {key: self.scores[names[0]] for key, names in groups.items()}
        self._collection = MetricCollection(dict(self.scores), compute_groups=list(groups.values()))

    def add_real(self, real: Tensor | RealImages, store: bool = False, labels: Tensor | None = None) -> None:
        """Adds the real images: `choose`, then `extract`.

        Args:
            real: uint8 (n, c, h, w), or data with `real_batches`, such as a datamodule or a folder of images; the same
                on every rank.
            store: whether to read the statistics if an earlier run has stored them, and to store them otherwise.
            labels: class of each image (n,), for scores that need classes; by default those of the data, if it has any.

        Raises:
            RefusedInput: there are too few images for every score.
        """
        self.choose(real, labels)
        self.extract(real, store)

    def extract(
        self,
        real: Tensor | RealImages | Iterator[Tensor],
        store: bool = False,
        follow: Callable[[Iterable[Tensor]], Iterable[Tensor]] = iter,
    ) -> None:
        """Extracts the real images that `choose` has identified, of which each rank takes a contiguous share.

        A rank reads only its share of a tensor and of the data of this package, see `images_between` for other data.

        Args:
            real: see `add_real`; or an iterator over all batches, which is left alone if the statistics are stored.
            store: see `add_real`.
            follow: yields the batches of this rank, to show progress or to stop early.
        """
        stateful = {key: score for key, score in self._owners.items() if score.real_states()}
        path = self._path(sorted(stateful)) if store else None
        found = None if path is None else cache.load(path, stateful)
        self.real_halves = self._extract_real(real, follow) if found is None else found
        if path is not None and found is None:
            cache.save(path, stateful, self.real_halves)

    def _batches(self, images: Tensor | RealImages | Iterable[Tensor]) -> Iterable[Tensor]:
        if isinstance(images, RealImages):
            return images.real_batches(self.batch_size)
        return images.split(self.batch_size) if isinstance(images, Tensor) else images

    def _extract_real(
        self, real: Tensor | RealImages | Iterator[Tensor], follow: Callable[[Iterable[Tensor]], Iterable[Tensor]]
    ) -> float:
        """Adds this rank's share of the real images to the scores, and returns the FID between the two halves.

        NaN if no score fits Gaussians, or if a half would have fewer than two images, which have no covariance.
        """
        rank, world_size = place()
        # full batches, so that values do not depend on the ranks; the last ranks may have none
        start, stop = (
            min(-(-self.num_real * each // (world_size * self.batch_size)) * self.batch_size, self.num_real)
            for each in (rank, rank + 1)
        )
        halves = FrechetInceptionDistance()
        halves.attach(self._network, self._widths)
        halves.to(self.device)
        self._collection.update(Features.of_nothing(self._widths, self.device), real=True)  # a rank may have no others
        own = self._between(real, start, stop)
        for images, labels in with_labels(follow(own), None if self._labels is None else self._labels[start:stop]):
            features, logits = self._network(images.to(self.device))
            self._collection.update(Features(features, logits), real=True, labels=labels)
            for half in (0, 1) if self.fits_gaussians else ():
                rows = slice((start + half) % 2, None, 2)
                halves.update(Features(features[rows], logits[rows]), real=half == 0)
            start += len(images)
        if not self.fits_gaussians or self.num_real < 4:
            return math.nan
        halves.update(Features.of_nothing(self._widths, self.device), real=True)
        return halves.compute().item()

    def _between(self, real: Tensor | RealImages | Iterator[Tensor], start: int, stop: int) -> Iterator[Tensor]:
        """Yields the images from position `start` to before `stop`."""
        if isinstance(real, RealImages):
            return images_between(real, start, stop, self.batch_size)
        return cut(iter(self._batches(real)), start, stop)

    def _path(self, states: list[str]) -> Path | None:
        """Returns the path of the statistics of the real images, if their states do not depend on code elsewhere.

        An extractor that wraps a user's module is also identified by the features of a noise image, since its code may
        change while its weights and name stay the same.
        """
        if not all(key.startswith("lit_gans.") for key in states):
            return None
        return cache.reference_path(
            self.extractor,
            probe=self.probe and self.probe.sha256,
            data_sha256=self.data_sha256,
            states=states,
            halves=self.fits_gaussians,
            device=self.device.type,
            labels=None if self._labels is None else self._labels.tolist(),
        )

    def measure(self, fake: Tensor | Iterable[Tensor], labels: Tensor | None = None) -> dict[str, float]:
        """Computes the values of generated images by key.

        Args:
            fake: images of this rank, uint8 (n, c, h, w) or batches of them, a contiguous share of all images.
            labels: class that was asked for of each image of this rank (n,), for scores that need classes.

        Raises:
            RefusedInput: classes are missing, or the number of images on all ranks differs from `num_samples`.
            RuntimeError: the real images have not been added.
        """
        if not self.data_sha256:
            raise RuntimeError("Call Evaluator.add_real() first: there are no real images to compare with.")
        self._collection.reset()
        self._num_fake.reset()
        self._collection.update(Features.of_nothing(self._widths, self.device), real=False)  # a rank may have no others
        self._num_fake.update(0)
        for images, classes in with_labels(self._batches(fake), labels):
            self._collection.update(self._network(images.to(self.device)), real=False, labels=classes)
            self._num_fake.update(len(images))
        num = int(self._num_fake.compute())
        if num != self.num_samples:
            raise RefusedInput(f"Expected {self.num_samples} generated images, received {num}.")
        self._warn_of_few(min(self.num_real, num))
        values: dict[str, float] = {}
        for score in self.scores.values():
            keys = score.keys(self.extractor)
            values |= {keys[name]: value for name, value in score.named(score.compute()).items()}
        return values

    def _warn_of_few(self, num: int) -> None:
        """Warns once if there are no more images than features."""
        if self.fits_gaussians and num <= self._widths.features and not self._warned:
            self._warned = True
            logger.warning(
                "%d images are no more than the %d features: covariances do not have full rank, and the FID is far too"
                " large to compare with the FID of more images.",
                num,
                self._widths.features,
            )


def _requested(extractor: Extractor, scores: Mapping[str, FeatureScore | None] | None) -> dict[str, FeatureScore]:
    """Returns the scores that are asked for, by name; see `Evaluator` for arguments and errors."""
    if scores is None:
        scores = {
            "fid": FrechetInceptionDistance(),
            "inception_score": InceptionScore(),
            "class_coverage": ClassCoverage(),
            "intra_fid": IntraFID(),
            "class_accuracy": ClassAccuracy(),
        }
    requested = {name: score for name, score in scores.items() if score is not None}
    owners: dict[str, str] = {}
    for name, score in requested.items():
        for key in score.keys(extractor).values():
            if owners.setdefault(key, name) != name:
                raise RefusedInput(f"the scores {owners[key]} and {name} both measure {key}: keep one of them.")
    return requested


def with_labels(batches: Iterable[Tensor], labels: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yields batches of images, each with its rows of the labels, or with None if there are no labels."""
    start = 0
    for images in batches:
        yield images, None if labels is None else labels[start : start + len(images)]
        start += len(images)
