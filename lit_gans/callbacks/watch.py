"""A line about the health of a training every few minutes, and as soon as something is wrong."""

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
from lit_gans.common.noise import forked, mix
from lit_gans.report.neighbors import reduced
from lit_gans.training.batch import Batch, prepare_batch, split_batch
from lit_gans.training.callback import GenerativeCallback, callbacks_of
from lit_gans.training.gan import Kind
from lit_gans.training.losses import flat_scores
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import evaluating

logger = logging.getLogger(__name__)

_NUM = 64  # number of real images, and of generated images, per look
_MOST_REAL = 2048  # training images that samples are compared with
_MOST_LOOKS = 1000  # that are kept


class Watch(GenerativeCallback):
    """Logs a line about the health of the training every few minutes, and at once when something goes wrong.

    `learning`, at level INFO; `stalled`, `collapsing`, `discriminator wins`, `diverging` or `memorizing`, at level
    WARNING, with what to try: see `lit_gans.callbacks.health.verdict`. Looks at up to 64 real images of the iteration
    and as many samples, which takes less time than an iteration. A batch of one image has no distances between images:
    they are left out, and a line says so once. (The module itself stops a training whose losses or
    weights are not finite, see `lit_gans.training.finite`.)

    Args:
        every_n_steps: number of generator iterations between two looks.
        patience: number of iterations that a failure must last.
        minutes: time between two lines; 0 logs one at every look.

    Attributes:
        looks: what the last 1,000 looks have measured.

    Raises:
        RefusedInput: a number is out of range.
    """

    def __init__(self, every_n_steps: int = 100, patience: int = 500, minutes: float = 3.0) -> None:
        refuse_below(1, every_n_steps=every_n_steps, patience=patience)
        refuse_below(0, minutes=minutes)
        self.every_n_steps, self.patience, self.minutes = every_n_steps, patience, minutes
        self.looks: list[Look] = []
        self._inputs: Batch | None = None  # of the images that are compared from look to look
        self._images: Tensor | None = None  # made of them at the last look
        self._real: list[Tensor] = []  # training images of the last looks
        self._said, self._said_at = "learning", 0.0  # kind of the last line, and seconds of the clock
        self._says_left_out = True  # whether a line about missing distances is still to come

    def state_dict(self) -> dict[str, Any]:
        return {"looks": [asdict(look) | {"classes": list(look.classes)} for look in self.looks]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.looks = [_loaded(look) for look in state_dict["looks"]]

    def on_train_start(self, trainer: Trainer, pl_module: AdversarialModule) -> None:
        if trainer.global_step == 0:  # a new training with the callback of an earlier one
            self.looks = []
        self._inputs, self._images, self._real = None, None, []
        self._said, self._said_at, self._says_left_out = "learning", time.monotonic(), True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: AdversarialModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            fake = self._look(trainer, pl_module, batch)
            if trainer.is_global_zero:
                self._report(trainer, fake)

    def _report(self, trainer: Trainer, fake: Tensor | None) -> None:
        """Logs a line if one is due, or if something has gone wrong; compares samples with training images if due."""
        due = time.monotonic() - self._said_at >= 60 * self.minutes
        if due and fake is not None:
            real = torch.cat(self._real).unique(dim=0)
            if len(real) > 1:
                self.looks[-1] = replace(self.looks[-1], copies=copied(fake, real))
        kind, why = verdict(self.looks, self.patience, self._stale(trainer))
        if due or kind not in ("learning", self._said):
            level = logging.INFO if kind == "learning" else logging.WARNING
            logger.log(level, "health at iteration %d: %s: %s", trainer.global_step, kind, why)
            self._said, self._said_at = kind, time.monotonic()

    @staticmethod
    def _stale(trainer: Trainer) -> str | None:
        """Returns the first measured key without a better value for some measurements, if any."""
        for metrics in callbacks_of(trainer, Measurement):
            _, best_at = metrics.best.get(metrics.headline, (0.0, metrics.measured_at))
            if metrics.measured_at - best_at >= STALE * metrics.every_n_steps:
                return metrics.headline.removeprefix("metric/")
        return None

    @torch.no_grad()
    def _look(self, trainer: Trainer, module: AdversarialModule, data: Any) -> Tensor | None:
        """Adds a look and returns its samples, reduced, on the host; None for translations, which have an input."""
        batch = split_batch(prepare_batch(data, module.channels_last), module.batches_per_step)[0]
        batch = {name: tensor[:_NUM] for name, tensor in batch.items()}
        self._inputs = module.sampling_batch_like(batch, 0) if self._inputs is None else self._inputs
        with forked(), evaluating(module):
            torch.manual_seed(mix(module.seed, "watch"))
            images = _seen(module, module.with_fake(self._inputs), "fake")
            torch.manual_seed(mix(module.seed, "watch", trainer.global_step))
            made = module.with_fake(module.sampling_batch_like(batch, trainer.global_step))
            accuracy = self._accuracy(module, batch, made)
        real, fake = _seen(module, batch, "real"), _seen(module, made, "fake")
        unit, translates = torch.pdist(real).mean(), "latents" not in made
        look = Look(trainer.global_step, accuracy, None, twins=0.0 if translates else None)
        if unit > 0:  # not of a single image, nor of equal ones
            look = replace(look, distance=energy_distance(real, fake).item())
            if self._images is not None:
                look = replace(look, change=((images - self._images).norm(dim=1).mean() / unit).item())
            if not translates:
                labels = batch.get("label") if module.num_classes else None
                own, theirs = (twins(each, TWIN * unit, labels) for each in (fake, real))
                excess = own.float().mean() - theirs.float().mean()
                collapsed = () if labels is None else _collapsed(own, theirs, labels)
                look = replace(look, twins=excess.item(), classes=collapsed)
        elif self._says_left_out and trainer.is_global_zero:
            self._says_left_out = False
            logger.info(
                "health at iteration %d: its batch has no two different images, so that distances between images are"
                " left out: a larger batch allows them.",
                trainer.global_step,
            )
        self._images = images
        self.looks = [*self.looks, look][-_MOST_LOOKS:]
        if translates or not trainer.is_global_zero:
            return None
        self._real = [*self._real, real.cpu()][-(_MOST_REAL // _NUM) :]
        return fake.cpu()

    @staticmethod
    def _accuracy(module: AdversarialModule, batch: Batch, made: Batch) -> dict[str, float]:
        """Returns the accuracy of each discriminator whose scores have a threshold, see `Look`."""
        found = {}
        for name, inputs in module.discriminator_inputs.items():
            discriminator = module.get_submodule(name)
            pairs = (batch, inputs["real"]), (made, inputs["fake"])
            scores = (discriminator(images[key], *module.condition(images)) for images, key in pairs)
            on_real, on_fake = (module.classified_as_real(name, flat_scores(each)) for each in scores)
            if on_real is not None and on_fake is not None:
                found[name] = min(on_real.float().mean().item(), 1 - on_fake.float().mean().item())
        return found


def _loaded(look: dict[str, Any]) -> Look:
    """Returns a look that was saved; earlier versions saved NaN where there is no distance."""
    values: dict[str, Any] = {name: None if value != value else value for name, value in look.items()}
    return Look(**values | {"classes": tuple(look["classes"])})


def _seen(module: AdversarialModule, batch: Batch, kind: Kind) -> Tensor:
    """Returns the real or generated images of a batch that discriminators receive, in short, for distances."""
    names = dict.fromkeys(inputs[kind] for inputs in module.discriminator_inputs.values())
    return reduced(module.to_unit_range(torch.cat([batch[name] for name in names], 1)).float())


def _collapsed(own: Tensor, theirs: Tensor, labels: Tensor) -> tuple[int, ...]:
    """Returns the classes of which most samples are twins, `own`, and most real images are not, `theirs`."""
    rows = {label: labels == label for label in labels.unique().tolist()}
    return tuple(
        label for label, of_one in rows.items() if own[of_one].float().mean() > 0.5 > theirs[of_one].float().mean()
    )
