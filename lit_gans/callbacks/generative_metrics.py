"""FID, Inception Score and class coverage while training."""

from __future__ import annotations

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement, share
from lit_gans.errors import RefusedInput
from lit_gans.metrics.evaluation import Evaluation, to_uint8
from lit_gans.metrics.extractor import Extractor
from lit_gans.models.generative import GenerativeModule


class GenerativeMetrics(Measurement):
    """Measures FID and Inception Score, on all ranks together (see `Measurement`).

    Logs `metric/fid_<extractor>`, `metric/is_<extractor>` and, where the extractor knows the classes,
    `metric/classes_covered`.

    Args:
        extractor: the features.
        every_n_steps: generator iterations between two measurements; the last iteration is always measured.
        num_samples: generated images in a measurement.
        batch_size: images generated and measured at once.
        seed: of the latents, the same in every measurement.

    Raises:
        RefusedInput: a number below 1.
    """

    def __init__(
        self,
        extractor: Extractor,
        every_n_steps: int = 250,
        num_samples: int = 2500,
        batch_size: int = 250,
        seed: int = 1,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        self.extractor = extractor
        self.headline = f"metric/fid_{extractor.name}"
        self.real_halves = float("nan")  # FID between two halves of the real images
        self._evaluation: Evaluation | None = None

    def setup(self, trainer: Trainer, pl_module: GenerativeModule, stage: str) -> None:
        if getattr(trainer.datamodule, "image_size", 0) == 1:
            raise RefusedInput("points have no FID: use metrics=modes, or metrics=none.")

    def summary(self) -> list[str]:
        """Returns lines for a person: the last values, and FID against the first and against the real images' own."""
        name = self.headline.removeprefix("metric/")
        last, first = self.values[self.headline], self.first.get(self.headline, float("nan"))
        others = [f"{key.removeprefix('metric/')} {value:.2f}" for key, value in self.values.items() if name not in key]
        halves = self.real_halves
        return [
            f"{name:11} {last:.2f} at iteration {self.measured_at}, {first:.2f} at 0 (1/{first / last:.0f});"
            f" between two halves of the real images: {halves:.2f} (ratio {last / halves:.1f})",
            f"{'':11} {', '.join(others)}, on {self.num_samples} samples",
        ]

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        if self._evaluation is None:
            # MPS has no float64, which the covariances need
            device = torch.device("cpu") if module.device.type == "mps" else module.device
            self._evaluation = Evaluation(self.extractor, device, self.seed)
            self._evaluation.add_real(share(trainer.datamodule.real_batches(self.batch_size), trainer))
            self.real_halves = self._evaluation.real_halves()  # now, when all ranks are here
        return self._evaluation.measure(map(to_uint8, self.generated(trainer, module)), self.num_samples)
