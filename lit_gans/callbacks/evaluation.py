"""FID, Inception Score and what else compares generated images with real ones, while training."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement, share
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.evaluator import Evaluation, to_uint8
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.protocol import fingerprint, reference_key, stamp
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.score import Score
from lit_gans.training.generative import GenerativeModule


class GenerativeMetrics(Measurement):
    """Measures scores, on all ranks together (see `Measurement`); null leaves one out.

    Logs `metric/<name>_<extractor>`: `fid`; `is` and `is_spread`; `kid` and `kid_spread`; `mifid`; `precision`,
    `recall`, `density`, `coverage`; and, where the extractor knows the classes, `metric/classes_covered`.

    Args:
        extractor: the features.
        every_n_steps: generator iterations between two measurements; the last iteration is always measured.
        num_samples: generated images in a measurement.
        batch_size: images generated and measured at once.
        seed: of the latents, the same in every measurement, and of splits and subsets.
        fid, inception_score, class_coverage, kid, mifid, prdc: settings of each score.
        cache: whether the statistics of the real images are kept on disk for further runs (`LIT_GANS_CACHE`).

    Raises:
        RefusedInput: a number below 1, or too few images for a score.
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
        self.scores = [score for score in given if score is not None and score.applies(extractor)]
        if not self.scores:
            raise RefusedInput("no score is left to measure: keep one, for example the fid, or use metrics=none.")
        keys = [(key, score.directions[name]) for score in self.scores for name, key in score.keys(extractor).items()]
        self.directions = dict(keys)
        self.headline = keys[0][0]
        self.real_halves = float("nan")  # FID between two halves of the real images
        self._evaluation: Evaluation | None = None
        self._data: tuple[str, list[int]] = "", []  # sha256 and shape of the real images

    def setup(self, trainer: Trainer, pl_module: GenerativeModule, stage: str) -> None:
        if getattr(trainer.datamodule, "image_size", 0) == 1:
            raise RefusedInput("points have no FID: use metrics=modes, or metrics=none.")
        for score in self.scores:
            score.refuse(None, self.num_samples)

    def summary(self) -> list[str]:
        """Returns lines for a person: last and best values, and FID against the first and the real images' own."""
        if not self.headline.startswith("metric/fid_"):
            return super().summary()
        name = self.headline.removeprefix("metric/")
        last, first = self.values[self.headline], self.first.get(self.headline, float("nan"))
        others = [f"{key.removeprefix('metric/')} {value:.4g}" for key, value in self.values.items() if name not in key]
        halves = self.real_halves
        return [
            f"{name:11} {last:.2f} at iteration {self.measured_at}, {first:.2f} at 0 (1/{first / last:.0f});"
            f" between two halves of the real images: {halves:.2f} (ratio {last / halves:.1f})",
            f"{'':11} {', '.join(others)}, on {self.num_samples} samples",
            *self.best_lines(),
        ]

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        if self._evaluation is None:
            self._begin(trainer, module)
        return self._evaluation.measure(map(to_uint8, self.generated(trainer, module)), self.num_samples)

    def _begin(self, trainer: Trainer, module: GenerativeModule) -> None:
        """Takes in the real images, or their statistics of an earlier run."""
        # MPS has no float64, which the covariances need
        device = torch.device("cpu") if module.device.type == "mps" else module.device
        evaluation = Evaluation(self.extractor, device, self.seed, self.scores)
        data = trainer.datamodule
        data_sha256, num_real, shape = fingerprint(data.real_batches(self.batch_size))
        for score in self.scores:
            score.refuse(num_real, self.num_samples)
        path = reference_path(reference_key(evaluation, data_sha256)) if self.cache else None
        evaluation.add_real(share(data.real_batches(self.batch_size), trainer), path)
        self.real_halves = evaluation.real_halves()  # now, when all ranks are here
        self._evaluation, self._data = evaluation, (data_sha256, shape)

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        data_sha256, shape = self._data
        protocol = stamp(
            self._evaluation,
            data=repr(trainer.datamodule),
            data_sha256=data_sha256,
            num_fake=self.num_samples,
            image_size=shape[1:],
            weights="raw" if module.averaged_generator is None else "ema",
        )
        return protocol.to_dict()
