"""FID, Inception Score and class coverage while training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import UInt8
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from lit_gans.callbacks.throughput import paused
from lit_gans.errors import RefusedInput
from lit_gans.metrics.evaluation import Evaluation, to_uint8
from lit_gans.metrics.extractor import Extractor
from lit_gans.models.generative import GenerativeModule


class GenerativeMetrics(Callback):
    """Measures the sampling generator at iteration 0 and every `every_n_steps`, on all ranks together.

    Logs `metric/fid_<extractor>`, `metric/is_<extractor>` and, where the extractor knows the classes,
    `metric/classes_covered`; any of them can steer a checkpoint. Draws its own random numbers: a training with
    evaluation is bitwise the one without.

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
        if min(every_n_steps, num_samples, batch_size) < 1:
            raise RefusedInput(f"{every_n_steps=}, {num_samples=} and {batch_size=} must be at least 1.")
        self.extractor = extractor
        self.every_n_steps, self.num_samples, self.batch_size, self.seed = every_n_steps, num_samples, batch_size, seed
        self.values: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.measured_at = 0
        self._evaluation: Evaluation | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "first": self.first, "measured_at": self.measured_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values, self.first = state_dict["values"], state_dict["first"]
        self.measured_at = state_dict["measured_at"]

    def on_train_start(self, trainer: Trainer, pl_module: GenerativeModule) -> None:
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in self.values.items()})
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)
            self.first = self.values

    def on_train_batch_end(self, trainer: Trainer, pl_module: GenerativeModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0 or trainer.global_step == trainer.max_steps:
            self._measure(trainer, pl_module)

    @property
    def real_halves(self) -> float:
        """The FID between two halves of the real images."""
        return self._evaluation.real_halves()

    def summary(self) -> list[str]:
        """Returns lines for a person: the last values, and FID against the first and against the real images' own."""
        name = f"fid_{self.extractor.name}"
        last, first = self.values[f"metric/{name}"], self.first.get(f"metric/{name}", float("nan"))
        others = [f"{key.removeprefix('metric/')} {value:.2f}" for key, value in self.values.items() if name not in key]
        halves = self.real_halves
        return [
            f"{name:11} {last:.2f} at iteration {self.measured_at}, {first:.2f} at 0 (1/{first / last:.0f});"
            f" between two halves of the real images: {halves:.2f} (ratio {last / halves:.1f})",
            f"{'':11} {', '.join(others)}, on {self.num_samples} samples",
        ]

    def _measure(self, trainer: Trainer, module: GenerativeModule) -> None:
        with paused(trainer):
            if self._evaluation is None:
                # MPS has no float64, which the covariances need
                device = torch.device("cpu") if module.device.type == "mps" else module.device
                self._evaluation = Evaluation(self.extractor, device, self.seed)
                self._evaluation.add_real(_share(trainer.datamodule.real_batches(self.batch_size), trainer))
            latents = module.latents(self.num_samples, self.seed).split(self.batch_size)
            images = (to_uint8(module.decode(part)) for part in _share(latents, trainer))
            self.measured_at = trainer.global_step
            self.values = self._evaluation.measure(images, self.num_samples)
            trainer.callback_metrics.update({name: torch.tensor(value) for name, value in self.values.items()})
            for logger in trainer.loggers:
                logger.log_metrics(self.values, step=trainer.global_step)


def _share(batches: Any, trainer: Trainer) -> Iterator[UInt8[Tensor, "b c h w"]]:
    """Yields the batches of this rank."""
    return (batch for index, batch in enumerate(batches) if index % trainer.world_size == trainer.global_rank)
