"""FID, Inception Score and other comparisons of generated with real images during training."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement
from lit_gans.common.errors import RefusedInput
from lit_gans.data.contracts import ImageSource
from lit_gans.data.images import to_uint8
from lit_gans.metrics.evaluator import Evaluator, chosen, directions, measurable
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.protocol import stamp
from lit_gans.metrics.scores.base import FeatureScore
from lit_gans.training.attached import data_of
from lit_gans.training.generative import GenerativeModule

logger = logging.getLogger(__name__)


class GenerativeMetrics(Measurement):
    """Measures scores during training, on all ranks; see `Measurement`, and `Evaluator` for the computation.

    Logs `metric/<name>_<extractor>`: `fid`; `is` and `is_spread`; `kid` and `kid_spread`; `mifid`; `precision`,
    `recall`, `density`, `coverage`; where the extractor knows the classes, `metric/classes_covered`; and for a
    generator with classes `intra_fid` and `class_accuracy`. Scores that need more images are left out; a log message,
    the report of the run and the protocol give the reason.

    Args:
        extractor: feature extractor.
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of generated images per measurement.
        batch_size: number of images generated and measured at once.
        seed: seed of the latents, the same in every measurement, and of splits and subsets.
        scores: scores by any name, null for those that are disabled; null measures FID, Inception Score and, where the
            extractor knows the classes, their coverage, and for a generator with classes those inside classes.
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
        scores: dict[str, FeatureScore | None] | None = None,
        cache: bool = True,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        self.extractor, self.cache = extractor, cache
        self.requested = chosen(extractor, scores)
        self._choose(self.requested)
        self.real_halves = math.nan  # FID between two halves of the real images
        self._evaluator: Evaluator | None = None

    def _choose(self, scores: Mapping[str, FeatureScore]) -> None:
        """Sets the scores to measure, the directions of their values and the headline value."""
        self.scores, self.directions = dict(scores), directions(self.extractor, scores)
        self.headline = next(iter(self.directions))

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
        requested = chosen(self.extractor, self.requested, pl_module.num_classes)
        scores, reasons = measurable(requested, math.inf, self.num_samples)
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
        compared = f"{'':11} for comparison: {halves:.2f} between two halves of the real images{ratio}"
        untrained = f"; untrained: {first:.2f}{_times_as_high(first, last)}" if self.measured_at else ""
        return [
            f"{name:11} {last:.2f} {self.measured_when()}, lower is better{untrained}",
            *([] if math.isnan(halves) else [compared]),
            f"{'':11} {', '.join(others)}, on {self.num_samples} samples",
            *self.best_lines(),
            *left_out,
        ]

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        if self._evaluator is None:
            self._evaluator = self._begin(trainer, module)
        images = map(to_uint8, self.generated(trainer, module))
        return self._evaluator.measure(images, self.requested_labels(trainer, module))

    def _begin(self, trainer: Trainer, module: GenerativeModule) -> Evaluator:
        """Returns an evaluator with the real images, or with their cached statistics."""
        # MPS has no float64, which the covariances need
        device = torch.device("cpu") if module.device.type == "mps" else module.device
        given = self.num_samples, self.batch_size, self.seed, device
        evaluator = Evaluator(self.extractor, self.scores, *given, num_classes=module.num_classes)
        evaluator.add_real(data_of(trainer), self.cache)
        self._choose(evaluator.scores)
        self._leave_out(evaluator.left_out, trainer)
        self.real_halves = evaluator.real_halves
        return evaluator

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        evaluator = self._evaluator or self._begin(trainer, module)
        weights = "raw" if module.averaged_generator is None else "ema"
        protocol = stamp(evaluator, data=repr(data_of(trainer)), weights=weights)
        return protocol | ({"left_out": self.left_out} if self.left_out else {})


def _times_as_high(first: float, last: float) -> str:
    return f", {first / last:.1f} times as high" if 0 < last < first else ""
