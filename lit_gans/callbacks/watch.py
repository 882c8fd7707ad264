"""Callback that logs the health of the training every few minutes, and failures immediately."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.health import STALE, TWIN, Look, copied, energy_distance, twins, verdict
from lit_gans.common.errors import refuse_below
from lit_gans.common.modes import evaluating
from lit_gans.common.noise import forked, mix
from lit_gans.data.images import reduced
from lit_gans.training.batch import Batch, prepare_batch, split_batch
from lit_gans.training.callback import GenerativeCallback, callbacks_of
from lit_gans.training.gan import Kind
from lit_gans.training.losses import flat_scores
from lit_gans.training.module import AdversarialModule

logger = logging.getLogger(__name__)

_NUM = 64  # number of real images per check, which is also the number of samples
_MOST_REAL = 2048  # maximum number of training images that samples are compared with
_KEPT_LOOKS = 1000  # number of checks whose measurements are kept, or more if `patience` needs more


class Watch(GenerativeCallback):
    """Checks the health of the training, logs it every few minutes, and logs failures immediately.

    A healthy run is logged as `learning` at level INFO. The failures `stalled`, `collapsing`, `discriminator wins`,
    `diverging` and `memorizing` are logged at level WARNING, with advice. See `lit_gans.callbacks.health.verdict` for
    their definitions. Losses and weights that are not finite are not checked here, because the module itself stops such
    a run, see `lit_gans.training.finite`.

    A check inspects up to 64 real images of the iteration and the same number of samples, which takes less time than an
    iteration. Distances between images need two different real images. If a batch does not contain two different
    images, the distances are left out. A log message says so the first time.

    Args:
        every_n_steps: number of generator iterations between two checks.
        patience: number of iterations that a failure must last before it is logged.
        minutes: time between two log lines, in minutes; 0 logs a line at every check.

    Attributes:
        looks: measurements of the last 1,000 checks, or more for a long `patience`.

    Raises:
        RefusedInput: If a number is out of range.
    """

    module_class = AdversarialModule

    def __init__(self, every_n_steps: int = 100, patience: int = 500, minutes: float = 3.0) -> None:
        refuse_below(1, every_n_steps=every_n_steps, patience=patience)
        refuse_below(0, minutes=minutes)
        self.every_n_steps, self.patience, self.minutes = every_n_steps, patience, minutes
        self.looks: list[Look] = []
        self._inputs: Batch | None = None  # fixed generator inputs, to measure how the generated images change
        self._images: Tensor | None = None  # images that the last check generated from `_inputs`
        self._real: list[Tensor] = []  # training images of the last checks
        self._logged_kind = "learning"  # kind of health in the last log line
        self._logged_at = 0.0  # time of the last log line, from `time.monotonic`
        self._logs_left_out = True  # whether to log that distances are left out; only once

    def state_dict(self) -> dict[str, Any]:
        return {"looks": [asdict(look) | {"classes": list(look.classes)} for look in self.looks]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.looks = [Look(**look | {"classes": tuple(look["classes"])}) for look in state_dict["looks"]]

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        if trainer.global_step == 0:  # this callback may have been used in a previous run
            self.looks = []
        self._inputs, self._images, self._real = None, None, []
        self._logged_kind, self._logged_at, self._logs_left_out = "learning", time.monotonic(), True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: AdversarialModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            fake = self._look(trainer, pl_module, batch)
            if trainer.is_global_zero:
                self._report(trainer, fake)

    def _report(self, trainer: Trainer, fake: Tensor | None) -> None:
        """Logs the health if a line is due or a new failure has occurred.

        Samples are compared with training images only if a line is due.
        """
        is_due = time.monotonic() - self._logged_at >= 60 * self.minutes
        if is_due and fake is not None:
            real = torch.cat(self._real).unique(dim=0)
            if len(real) > 1:
                self.looks[-1] = replace(self.looks[-1], copies=copied(fake, real))
        kind, why = verdict(self.looks, self.patience, self._stale(trainer))
        if is_due or kind not in ("learning", self._logged_kind):
            level = logging.INFO if kind == "learning" else logging.WARNING
            logger.log(level, "health at iteration %d: %s: %s", trainer.global_step, kind, why)
            self._logged_kind, self._logged_at = kind, time.monotonic()

    @staticmethod
    def _stale(trainer: Trainer) -> str | None:
        """Returns the first metric whose last `STALE` measurements had no better value, or None."""
        for metrics in callbacks_of(trainer, Measurement):
            _, best_at = metrics.best.get(metrics.headline, (0.0, metrics.measured_at))
            if metrics.measured_at - best_at >= STALE * metrics.every_n_steps:
                return metrics.headline.removeprefix("metric/")
        return None

    @torch.no_grad()
    def _look(self, trainer: Trainer, module: AdversarialModule, data: Any) -> Tensor | None:
        """Runs a check, adds its measurements to `looks`, and returns its downscaled samples on the CPU.

        Returns None on ranks other than 0. Also returns None for a translator, because translations resemble their
        input images.
        """
        batch = split_batch(prepare_batch(data, module.channels_last), module.batches_per_step)[0]
        batch = {name: tensor[:_NUM] for name, tensor in batch.items()}
        self._inputs = module.sampling_batch_like(batch, 0) if self._inputs is None else self._inputs
        with forked(), evaluating(module):
            torch.manual_seed(mix(module.seed, "watch"))
            images = _downscaled(module, module.with_fake(self._inputs), "fake")
            torch.manual_seed(mix(module.seed, "watch", trainer.global_step))
            generated = module.with_fake(module.sampling_batch_like(batch, trainer.global_step))
            accuracy = self._accuracy(module, batch, generated)
        real, fake = _downscaled(module, batch, "real"), _downscaled(module, generated, "fake")
        unit, translates = torch.pdist(real).mean(), "latents" not in generated
        look = Look(trainer.global_step, accuracy, None, twins=0.0 if translates else None)
        if unit > 0:  # 0 if all real images are equal, NaN for a single image
            look = replace(look, distance=energy_distance(real, fake).item())
            if self._images is not None:
                look = replace(look, change=((images - self._images).norm(dim=1).mean() / unit).item())
            if not translates:
                labels = batch.get("label") if module.num_classes else None
                fake_twins, real_twins = (twins(each, TWIN * unit, labels) for each in (fake, real))
                excess = fake_twins.float().mean() - real_twins.float().mean()
                collapsed = () if labels is None else _collapsed(fake_twins, real_twins, labels)
                look = replace(look, twins=excess.item(), classes=collapsed)
        elif self._logs_left_out and trainer.is_global_zero:
            self._logs_left_out = False
            logger.info(
                "health at iteration %d: the batch has no two different images, so distances between images are left"
                " out. Use a larger batch to measure them.",
                trainer.global_step,
            )
        self._images = images
        num = max(_KEPT_LOOKS, 2 * self.patience // self.every_n_steps)  # `verdict` needs checks before the patience
        self.looks = [*self.looks, look][-num:]
        if translates or not trainer.is_global_zero:
            return None
        self._real = [*self._real, real.cpu()][-(_MOST_REAL // _NUM) :]
        return fake.cpu()

    @staticmethod
    def _accuracy(module: AdversarialModule, batch: Batch, generated: Batch) -> dict[str, float]:
        """Returns the accuracy of every discriminator whose scores have a decision threshold, see `Look`."""
        accuracy = {}
        for name, inputs in module.discriminator_inputs.items():
            discriminator = module.get_submodule(name)
            pairs = (batch, inputs["real"]), (generated, inputs["fake"])
            scores = (discriminator(images[key], *module.condition(images)) for images, key in pairs)
            on_real, on_fake = (module.classified_as_real(name, flat_scores(each)) for each in scores)
            if on_real is not None and on_fake is not None:
                accuracy[name] = min(on_real.float().mean().item(), 1 - on_fake.float().mean().item())
        return accuracy


def _downscaled(module: AdversarialModule, batch: Batch, kind: Kind) -> Tensor:
    """Returns the real or generated images that discriminators receive as inputs. The images are downscaled."""
    names = dict.fromkeys(inputs[kind] for inputs in module.discriminator_inputs.values())
    return reduced(module.to_unit_range(torch.cat([batch[name] for name in names], 1)).float())


def _collapsed(fake_twins: Tensor, real_twins: Tensor, labels: Tensor) -> tuple[int, ...]:
    """Returns the classes in which most samples have twins and most real images have no twins."""
    return tuple(
        label
        for label in labels.unique().tolist()
        if fake_twins[labels == label].float().mean() > 0.5 > real_twins[labels == label].float().mean()
    )
