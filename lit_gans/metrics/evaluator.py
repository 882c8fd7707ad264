"""Compares generated images with real images. All scores are computed from a single pass of the feature extractor."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torchmetrics import MetricCollection, SumMetric

from lit_gans.common.errors import RefusedInput
from lit_gans.common.rank_zero import computed_once, rank_and_world_size
from lit_gans.data.class_names import class_names_of, other_class
from lit_gans.data.contracts import Fingerprinted, Labeled, RealImages
from lit_gans.data.digests import Fingerprint, fingerprint
from lit_gans.data.reading import cut, images_between
from lit_gans.metrics import cache
from lit_gans.metrics.extractors.base import Extractor, Features, Network, Probe, Widths, refuse_nameless
from lit_gans.metrics.scores.base import Compared, FeatureScore, gather
from lit_gans.metrics.scores.classes import ClassAccuracy, ClassCoverage, IntraFID, LabeledScore
from lit_gans.metrics.scores.fid import FrechetInceptionDistance
from lit_gans.metrics.scores.inception_score import InceptionScore

logger = logging.getLogger(__name__)


class Evaluator:
    """Compares generated images with real images by the features of an extractor.

    Each rank reads its share of the real images and adds its share of the generated images, which can be empty. Values
    are computed from the images of all ranks.

        evaluator = Evaluator(DigitsExtractor(), {"fid": FrechetInceptionDistance()}, num_samples=1000)
        evaluator.add_real(real_images)
        values = evaluator.measure(generated_images)

    Args:
        extractor: extractor of features and logits. The extractor's name is the suffix of the metric keys.
        scores: scores by name; a score that is None is disabled. The evaluator uses copies of the scores, and sets
            their extractor, seed and device. By default, FID, Inception Score and, if there are classes, the class
            scores are measured.
        num_samples: total number of generated images on all ranks.
        batch_size: number of images whose features are extracted at once.
        seed: seed of random splits and subsets.
        device: device of the extractor.
        num_classes: number of classes of the generator; 0 disables the scores that need classes.

    Attributes:
        scores: scores that are measured, by name. `choose` sets them.
        left_out: reason why a score is not measured, by the score's name.
        num_real, shape, data_sha256: number, shape (c, h, w) and digest of the real images.
        labels_sha256: digest of the classes of the real images if a score depends on them, otherwise None.
        real_halves: FID between the real images with even indices and the real images with odd indices. In practice,
            this value is a lower bound of the FID. NaN if no score fits Gaussians.
        probe: summary of the features of a noise image, if the extractor does not declare the widths of its outputs.

    Raises:
        RefusedInput: two scores have the same key, or the extractor has no name.
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
        refuse_nameless(extractor)
        self._requested = deepcopy(
            _requested(extractor, scores)
        )  # copy the scores, so that evaluators do not share states
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
        self._owners: dict[str, FeatureScore] = {}  # one score of each group of scores with shared states
        self._num_fake = SumMetric(dist_sync_fn=gather)

    @property
    def directions(self) -> dict[str, str | None]:
        """For each key, `min` if smaller values are better, `max` if larger values are better, otherwise None."""
        scores = self.scores.values()
        return {key: score.directions[name] for score in scores for name, key in score.keys(self.extractor).items()}

    @property
    def fits_gaussians(self) -> bool:
        """Whether any score needs means and covariances."""
        return any(score.needs_covariance for score in self.scores.values())

    def choose(self, real: Tensor | RealImages | Iterator[Tensor], labels: Tensor | None = None) -> None:
        """Computes the digest of the real images, and selects the scores that the images and the extractor support.

        Rank 0 reads all images to compute their digest, unless the data provide it
        (`lit_gans.data.contracts.Fingerprinted`). Every rank must call this method. For each score that is not
        supported, the reason is stored in `left_out`. If there are no classes, users do not expect class scores, and no
        reason is stored for them.

        Args:
            real: see `extract`.
            labels: see `add_real`.

        Raises:
            RefusedInput: no score can be measured, and the message contains the reason for each score; the number of
                labels differs from the number of images; or the extractor is for other classes.
        """
        choose_together([self], real, labels)

    def take_fingerprint(self, real: Fingerprint, labels: Tensor | None, class_names: tuple[str, ...] = ()) -> None:
        """See `choose`.

        Args:
            real: digest, number and shape of the real images.
            labels: class of each image (n,), or None.
            class_names: names of the classes of the images; empty if they have no names.
        """
        other = other_class(class_names_of(self.extractor), class_names)
        if self.num_classes and self.extractor.num_classes and other is not None:
            raise RefusedInput(
                f"the extractor {self.extractor.name} knows other classes than the real images: {other}; use an"
                " extractor for the classes of the images."
            )
        self.data_sha256, self.num_real, self.shape = real
        widths, self.probe = self._network.widths(self.shape)
        self._widths = replace(widths, classes=self.num_classes)
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
        """Sets the extractor of all scores. Scores with the same `states_key` share their states."""
        groups: dict[str, list[str]] = {}
        for name, score in self.scores.items():
            score.reset_real_features, score.seed = False, self.seed
            score.attach(self._network, self._widths)
            score.to(self.device)
            groups.setdefault(score.states_key(), []).append(name)
        self._owners = {key: self.scores[names[0]] for key, names in groups.items()}
        self._collection = MetricCollection(dict(self.scores), compute_groups=list(groups.values()))

    def add_real(self, real: Tensor | RealImages, store: bool = False, labels: Tensor | None = None) -> None:
        """Adds the real images by calling `choose` and then `extract`.

        Args:
            real: uint8 images (n, c, h, w), or data with `real_batches`, such as a datamodule or a folder of images.
                The images must be the same on every rank.
            store: whether to load the statistics if an earlier run has stored them, and to store them otherwise.
            labels: class of each image (n,), for scores that need classes. By default, the labels of the data are used,
                if there are any.

        Raises:
            RefusedInput: no score can be measured, for example because there are too few images; or the number of
                labels differs from the number of images.
        """
        self.choose(real, labels)
        self.extract(real, store)

    def extract(
        self,
        real: Tensor | RealImages | Iterator[Tensor],
        store: bool = False,
        follow: Callable[[Iterable[Tensor]], Iterable[Tensor]] = iter,
    ) -> None:
        """Extracts features of the real images that were passed to `choose`. Each rank extracts a contiguous share.

        A rank reads only its share of a tensor or of data of this package. For other data, see `images_between`.

        Args:
            real: see `add_real`; or an iterator over all batches, which is not consumed if stored statistics are
                loaded.
            store: see `add_real`.
            follow: function that wraps the batches of this rank, to show progress or to stop early.
        """
        extract_together([self], real, store, follow)

    def load_stored(self, store: bool) -> bool:
        """Loads stored statistics of the real images, and returns whether there are any."""
        stateful, path = self._stored(store)
        cached = None if path is None else cache.load(path, stateful)
        self.real_halves = math.nan if cached is None else cached
        return cached is not None

    def _stored(self, store: bool) -> tuple[dict[str, FeatureScore], Path | None]:
        """Returns the scores whose states are stored, and the path of the states, which is None without `store`."""
        stateful = {key: score for key, score in self._owners.items() if score.real_states()}
        return stateful, self._path(sorted(stateful)) if store else None

    def batches(self, images: Tensor | RealImages | Iterable[Tensor]) -> Iterable[Tensor]:
        if isinstance(images, RealImages):
            return images.real_batches(self.batch_size)
        return images.split(self.batch_size) if isinstance(images, Tensor) else images

    def share_of_rank(self) -> tuple[int, int]:
        """Returns the position of the first real image of this rank, and the position after its last image.

        Shares consist of full batches, so that values do not depend on the world size. The shares of the last ranks can
        be empty.
        """
        rank, world_size = rank_and_world_size()
        start, stop = (
            min(-(-self.num_real * index // (world_size * self.batch_size)) * self.batch_size, self.num_real)
            for index in (rank, rank + 1)
        )
        return start, stop

    def begin_real(self) -> FrechetInceptionDistance:
        """Resets all scores, and returns the score for the two halves of the real images."""
        self._attach()  # an interrupted pass over the real images might have left some of them
        halves = FrechetInceptionDistance()
        halves.attach(self._network, self._widths)
        halves.to(self.device)
        # update with an empty batch first, because this rank might have no images
        self._collection.update(Features.of_nothing(self._widths, self.device), real=True)
        return halves

    def add_real_batch(self, images: Tensor, position: int, halves: FrechetInceptionDistance) -> None:
        """Adds real images, the first of which has the index `position`, to the scores and to the halves."""
        features, logits = self._network(images.to(self.device))
        labels = None if self._labels is None else self._labels[position : position + len(images)]
        self._collection.update(Features(features, logits), real=True, labels=labels)
        for half in (0, 1) if self.fits_gaussians else ():
            rows = slice((position + half) % 2, None, 2)
            halves.update(Features(features[rows], logits[rows]), real=half == 0)

    def end_real(self, halves: FrechetInceptionDistance, store: bool) -> None:
        """Computes the FID between the halves, and stores the statistics with `store`.

        The FID is NaN if no score fits Gaussians, or if a half has fewer than two images and therefore no covariance.
        """
        if self.fits_gaussians and self.num_real >= 4:
            halves.update(Features.of_nothing(self._widths, self.device), real=True)
            self.real_halves = halves.compute().item()
        stateful, path = self._stored(store)
        if path is not None:
            cache.save(path, stateful, self.real_halves)

    def between(self, real: Tensor | RealImages | Iterator[Tensor], start: int, stop: int) -> Iterator[Tensor]:
        """Yields batches of the images at positions `start` to `stop - 1`."""
        if isinstance(real, RealImages):
            return images_between(real, start, stop, self.batch_size)
        return cut(iter(self.batches(real)), start, stop)

    def _path(self, states: list[str]) -> Path | None:
        """Returns the path of the cached statistics, or None if a state is defined by a class outside of this package.

        If the extractor wraps a user's module, the path also depends on the features of a noise image. The reason is
        that the module's code can change while its weights and name stay the same.
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
        """Computes the scores of generated images, and returns their values by key.

        Args:
            fake: uint8 images (n, c, h, w) of this rank, or batches of such images. Each rank adds a contiguous share
                of all images.
            labels: class (n,) for which each image of this rank was generated, for scores that need classes.

        Raises:
            RefusedInput: classes are missing, the number of classes differs from the number of images, or the total
                number of images on all ranks differs from `num_samples`.
            RuntimeError: the real images have not been added.
        """
        return measure_together([self], fake, labels)[0]

    def begin_fake(self) -> None:
        if not self.data_sha256:
            raise RuntimeError("Call Evaluator.add_real() first: there are no real images to compare with.")
        self._collection.reset()
        self._num_fake.reset()
        # update with an empty batch first, because this rank might have no images
        self._collection.update(Features.of_nothing(self._widths, self.device), real=False)
        self._num_fake.update(0)

    def add_fake_batch(self, images: Tensor, labels: Tensor | None) -> None:
        self._collection.update(self._network(images.to(self.device)), real=False, labels=labels)
        self._num_fake.update(len(images))

    def values(self) -> dict[str, float]:
        num = int(self._num_fake.compute())
        if num != self.num_samples:
            raise RefusedInput(f"Expected num_samples={self.num_samples} generated images, received {num}.")
        self._warn_if_rank_deficient(min(self.num_real, num))
        values: dict[str, float] = {}
        for score in self.scores.values():
            keys = score.keys(self.extractor)
            values |= {keys[name]: value for name, value in score.named(score.compute()).items()}
        return values

    def _warn_if_rank_deficient(self, num: int) -> None:
        """Warns once if the number of images does not exceed the number of features."""
        if self.fits_gaussians and num <= self._widths.features and not self._warned:
            self._warned = True
            logger.warning(
                "The number of images (%d) does not exceed the number of features (%d), so that covariances do not have"
                " full rank: the FID is far too large, and cannot be compared with the FID of more images.",
                num,
                self._widths.features,
            )


def choose_together(
    evaluators: Sequence[Evaluator], real: Tensor | RealImages | Iterator[Tensor], labels: Tensor | None = None
) -> None:
    """Calls `Evaluator.choose` of each evaluator. The real images are read once.

    Args:
        evaluators: evaluators of the same images, with the same batch size.
        real, labels: see `Evaluator.choose`.
    """
    batches = evaluators[0].batches
    read = real.real_fingerprint if isinstance(real, Fingerprinted) else lambda: fingerprint(batches(real))
    found = computed_once(read)
    if labels is None and isinstance(real, Labeled) and real.num_classes:
        labels = real.real_labels()
    _raise_if_not_one_label_each(labels, found.num)
    for evaluator in evaluators:
        evaluator.take_fingerprint(found, labels, class_names_of(real))


def extract_together(
    evaluators: Sequence[Evaluator],
    real: Tensor | RealImages | Iterator[Tensor],
    store: bool = False,
    follow: Callable[[Iterable[Tensor]], Iterable[Tensor]] = iter,
) -> None:
    """Calls `Evaluator.extract` of each evaluator. All extractors share one pass over the real images.

    Args:
        evaluators: evaluators of the same images, with the same batch size.
        real, store, follow: see `Evaluator.extract`.
    """
    left = [evaluator for evaluator in evaluators if not evaluator.load_stored(store)]
    if not left:
        return
    position, stop = left[0].share_of_rank()
    halves = [evaluator.begin_real() for evaluator in left]
    for images in follow(left[0].between(real, position, stop)):
        for evaluator, of_evaluator in zip(left, halves, strict=True):
            evaluator.add_real_batch(images, position, of_evaluator)
        position += len(images)
    if position < stop:
        raise RefusedInput(
            f"the data has yielded real images up to number {position}, but up to number {stop} when they were counted:"
            " real_batches must yield the same images at each call."
        )
    for evaluator, of_evaluator in zip(left, halves, strict=True):
        evaluator.end_real(of_evaluator, store)


def measure_together(
    evaluators: Sequence[Evaluator], fake: Tensor | Iterable[Tensor], labels: Tensor | None = None
) -> list[dict[str, float]]:
    """Returns the values of `Evaluator.measure` of each evaluator. Generated images are generated or read once.

    Args:
        evaluators: evaluators of the same images, with the same batch size.
        fake, labels: see `Evaluator.measure`.
    """
    for evaluator in evaluators:
        evaluator.begin_fake()
    for images, classes in with_labels(evaluators[0].batches(fake), labels):
        for evaluator in evaluators:
            evaluator.add_fake_batch(images, classes)
    return [evaluator.values() for evaluator in evaluators]


def _requested(extractor: Extractor, scores: Mapping[str, FeatureScore | None] | None) -> dict[str, FeatureScore]:
    """Returns the scores that are not disabled, by name. See `Evaluator` for the arguments and errors."""
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
                raise RefusedInput(f"the scores {owners[key]} and {name} both measure {key}: remove one of them.")
    return requested


def with_labels(batches: Iterable[Tensor], labels: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yields each batch of images together with its labels, or with None if there are no labels.

    Raises:
        RefusedInput: the total number of images differs from the number of labels.
    """
    start = 0
    for images in batches:
        yield images, None if labels is None else labels[start : start + len(images)]
        start += len(images)
    _raise_if_not_one_label_each(labels, start)


def _raise_if_not_one_label_each(labels: Tensor | None, num: int) -> None:
    if labels is not None and len(labels) != num:
        raise RefusedInput(f"received {len(labels)} labels for {num} images: pass the label of each image.")
