"""Coverage of the known modes of the data during training."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement
from lit_gans.common.errors import RefusedInput
from lit_gans.data.contracts import HasModes, NeedsClassifier
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.scores.modes import ModeCoverage as ModeCoverageMetric
from lit_gans.training.attached import data_of
from lit_gans.training.generative import GenerativeModule


class ModeCoverage(Measurement):
    """Logs `metric/modes_covered`, `metric/high_quality` (fraction of samples in a mode) and `metric/kl_uniform`.

    Requires data with known modes (`lit_gans.data.contracts.HasModes`), such as ring, grid and stacked_digits. See
    `Measurement`, and `lit_gans.metrics.scores.modes` for the values.

    Args:
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of generated samples per measurement; usually 2,500 for points, 25,600 for stacked digits.
        batch_size: number of samples generated at once.
        seed: seed of the latents, the same in every measurement.

    Raises:
        RefusedInput: a number below 1, or data without modes.
    """

    headline = "metric/modes_covered"
    directions = {f"metric/{name}": direction for name, direction in ModeCoverageMetric.directions.items()}

    def __init__(
        self, every_n_steps: int = 1000, num_samples: int = 2500, batch_size: int = 2500, seed: int = 1
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        self._classifier: DigitsExtractor | None = None

    def setup(self, trainer: Trainer, pl_module: GenerativeModule, stage: str) -> None:
        if not isinstance(data_of(trainer), HasModes):
            raise RefusedInput("metrics=modes needs data whose modes are known: data=ring, grid or stacked_digits.")

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        data = data_of(trainer)
        return super().stamp(trainer, module) | {"num_modes": data.num_modes, "min_samples": data.min_samples}

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        data = data_of(trainer)
        if isinstance(data, NeedsClassifier):
            self._classifier = self._classifier or DigitsExtractor()
            data.set_classifier(self._classifier)
        metric = ModeCoverageMetric(data.num_modes, data.min_samples).to(module.device)
        for samples in self.generated(trainer, module):
            metric.update(data.modes_of(samples))
        return {f"metric/{name}": value.item() for name, value in metric.compute().items()}
