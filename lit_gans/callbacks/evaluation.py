"""FID, Inception Score and other comparisons of generated with real images during training."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement, share
from lit_gans.common.errors import RefusedInput
from lit_gans.data.contracts import ImageSource
from lit_gans.data.images import to_uint8
from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.protocol import fingerprint, reference_key, stamp
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.score import Score, measurable
from lit_gans.training.attached import data_of
from lit_gans.training.generative import GenerativeModule

logger = logging.getLogger(__name__)


class GenerativeMetrics(Measurement):
    """Measures scores during training, on all ranks (see `Measurement`); setting a score to null disables it.

    Logs `metric/<name>_<extractor>`: `fid`; `is` and `is_spread`; `kid` and `kid_spread`; `mifid`; `precision`,
    `recall`, `density`, `coverage`; and, where the extractor knows the classes, `metric/classes_covered`. Scores that
    need more images are left out; a log message, the report of the run and the protocol give the reason.

    Args:
        extractor: feature extractor.
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, the same in every measurement, and of splits and subsets.
        fid, inception_score, class_coverage, kid, mifid, prdc: settings of each score; null disables it.
        cache: whether to cache the statistics of the real images for further runs (in `LIT_GANS_CACHE`).

    Raises:
        RefusedInput: a number below 1, data without images, or too few images for every score.
    """

    def __init__(
        self,
        extractor: Extractor,
        every_n_steps: int = 250,
        num_samples: int = 2500,
        batch_size: int = 250,
        seed: int = 1,
        fid: Score | None = FID(),
        inception_score: Score | None = InceptionScore(),
        class_coverage: Score | None = ClassCoverage(),
        kid: Score | None = None,
        mifid: Score | None = None,
        prdc: Score | None = None,
        cache: bool = True,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        given = (fid, inception_score, class_coverage, kid, mifid, prdc)
        self.extractor, self.cache = extractor, cache
        self.requested = [score for score in given if score is not None and score.applies(extractor)]
        if not self.requested:
            raise RefusedInput("no score is left to measure: keep one, for example the fid, or use metrics=none.")
        self._choose(self.requested)
        self.real_halves = float("nan")  # FID between two halves of the real images
        self._evaluation: Evaluation | None = None
        self._data: tuple[str, list[int]] = "", []  # sha256 and shape of the real images

    def _choose(self, scores: Sequence[Score]) -> None:
        """Sets the scores to measure, the directions of their values and the headline value."""
        keyed = [(key, score.directions[name]) for score in scores for name, key in score.keys(self.extractor).items()]
        self.scores, self.directions, self.headline = list(scores), dict(keyed), keyed[0][0]

    def _leave_out(self, reasons: dict[str, str], trainer: Trainer) -> None:
        for name, reason in reasons.items():
            if name not in self.left_out and trainer.is_global_zero:
                logger.warning("metrics: %s is left out: %s", name, reason)
        self.left_out |= reasons

    def setup(self, trainer: Trainer, pl_module: GenerativeModule, stage: str) -> None:
        data = data_of(trainer)
        if not isinstance(data, ImageSource):
            raise RefusedInput(
                "metrics of images need a datamodule with image_size, channels, num_classes and real_batches"
                " (lit_gans.data.contracts.ImageSource): add them, or use metrics=none."
            )
        if data.image_size == 1:
            raise RefusedInput("points have no FID: use metrics=modes, or metrics=none.")
        scores, reasons = measurable(self.requested, None, self.num_samples)
        self._choose(scores)
        self._leave_out(reasons, trainer)

    def summary(self) -> list[str]:
        """Returns a readable summary: last and best values, the FID between real halves, and scores left out."""
        left_out = [f"{'':11} left out: {name} ({reason.rstrip('.')})" for name, reason in self.left_out.items()]
        if not self.headline.startswith("metric/fid_"):
            return [*super().summary(), *left_out]
        name = self.headline.removeprefix("metric/")
        last, first = self.values[self.headline], self.first.get(self.headline, float("nan"))
        others = [
            f"{key.removeprefix('metric/')} {value:.4g}" for key, value in self.values.items() if key != self.headline
        ]
        halves = self.real_halves  # unknown until this process has measured
        ratio = f" (ratio {last / halves:.1f})" if halves else ""  # 0 if all real images are equal
        compared = f"; between two halves of the real images: {halves:.2f}{ratio}"
        return [
            f"{name:11} {last:.2f} at iteration {self.measured_at}, {first:.2f} at 0 (1/{first / last:.0f})"
            f"{'' if math.isnan(halves) else compared}",
            f"{'':11} {', '.join(others)}, on {self.num_samples} samples",
            *self.best_lines(),
            *left_out,
        ]

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        if self._evaluation is None:
            self._evaluation = self._begin(trainer, module)
        return self._evaluation.measure(map(to_uint8, self.generated(trainer, module)), self.num_samples)

    def _begin(self, trainer: Trainer, module: GenerativeModule) -> Evaluation:
        """Returns an evaluation with the real images, or with their cached statistics."""
        # MPS has no float64, which the covariances need
        device = torch.device("cpu") if module.device.type == "mps" else module.device
        evaluation = Evaluation(self.extractor, device, self.seed, self.scores)
        data = data_of(trainer)
        data_sha256, num_real, shape = fingerprint(data.real_batches(self.batch_size))
        evaluation.leave_out(num_real, self.num_samples, shape)
        self._choose(evaluation.scores)
        self._leave_out(evaluation.left_out, trainer)
        path = reference_path(reference_key(evaluation, data_sha256)) if self.cache else None
        evaluation.add_real(share(data.real_batches(self.batch_size), trainer), path)
        self.real_halves = evaluation.real_halves()  # now, since every rank must take part
        self._data = data_sha256, shape
        return evaluation

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        evaluation = self._evaluation or self._begin(trainer, module)
        data_sha256, shape = self._data
        protocol = stamp(
            evaluation,
            data=repr(data_of(trainer)),
            data_sha256=data_sha256,
            num_fake=self.num_samples,
            image_size=shape[1:],
            weights="raw" if module.averaged_generator is None else "ema",
        )
        return protocol.to_dict() | ({"left_out": self.left_out} if self.left_out else {})
