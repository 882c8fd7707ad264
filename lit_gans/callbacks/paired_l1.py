"""Mean absolute difference between translations and their targets during training."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks.measurement import Measurement, share
from lit_gans.common.errors import RefusedInput
from lit_gans.data.contracts import Paired
from lit_gans.metrics.cache import fingerprint
from lit_gans.metrics.scores.paired_l1 import PairedL1 as PairedL1Metric
from lit_gans.training.attached import data_of
from lit_gans.training.generative import GenerativeModule


class PairedL1(Measurement):
    """Logs `metric/l1`, the mean absolute difference between translations and targets in [0, 1] of held-out pairs.

    See `Measurement`.

    Args:
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of pairs per measurement, at most all held-out pairs.
        batch_size: number of images translated at once.
        seed: seed of dropout, the same in every measurement.

    Raises:
        RefusedInput: a number below 1, or data without pairs.
    """

    headline = "metric/l1"
    directions = {"metric/l1": "min"}

    def __init__(self, every_n_steps: int = 250, num_samples: int = 500, batch_size: int = 64, seed: int = 1) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)

    def setup(self, trainer: Trainer, pl_module: GenerativeModule, stage: str) -> None:
        if not isinstance(data_of(trainer), Paired):
            raise RefusedInput("metric/l1 needs pairs: data=digit_edges, data=emoji_lines or data=paired_folder.")

    def stamp(self, trainer: Trainer, module: GenerativeModule) -> dict[str, Any]:
        pairs = data_of(trainer).held_out["image"][: self.num_samples]
        data_sha256, num, shape = fingerprint([pairs])
        found = {"num_fake": num, "data_sha256": data_sha256, "image_size": shape[1:]}
        return super().stamp(trainer, module) | found

    def measure(self, trainer: Trainer, module: GenerativeModule) -> dict[str, float]:
        pairs = {name: images[: self.num_samples] for name, images in data_of(trainer).held_out.items()}
        metric = PairedL1Metric().to(module.device)
        for index in share(torch.arange(len(pairs["image"])).split(self.batch_size), trainer):
            images = module.decode(pairs["input"][index].float() / 127.5 - 1, seed=self.seed)
            metric.update(images, pairs["image"][index].to(images.device))
        return {"metric/l1": metric.compute().item()}
