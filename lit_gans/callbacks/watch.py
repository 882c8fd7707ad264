"""Detection of failing trainings: dominant discriminators and collapsed samples."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int64
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import forked, mix
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.batch import prepare_batch, split_batch, take
from lit_gans.training.callback import GenerativeCallback
from lit_gans.training.sampling import evaluating
from lit_gans.training.scored import flat_scores

_ALL_RIGHT = 0.99
_NUM = 64  # number of real images, and of generated images, per check


class Watch(GenerativeCallback):
    """Warns if a discriminator dominates or samples collapse.

    A discriminator dominates if it classifies more than 99 % of real and generated images correctly, at every check in
    `patience` iterations: the generator then learns nothing. Samples have collapsed if their mean pairwise distance
    stays below `min_diversity` times that of real images for as long; with classes, samples of one class are compared
    with real images of that class. Each warning is issued once. (The module itself stops a training whose losses or
    weights are not finite, see `lit_gans.training.finite`.)

    Args:
        every_n_steps: number of generator iterations between two checks.
        patience: number of iterations that a failure must last.
        min_diversity: smallest allowed ratio of the mean pairwise distances, in [0, 1).

    Raises:
        RefusedInput: a number is out of range.
    """

    def __init__(self, every_n_steps: int = 50, patience: int = 500, min_diversity: float = 0.1) -> None:
        refuse_below(1, every_n_steps=every_n_steps, patience=patience)
        if not 0 <= min_diversity < 1:
            raise RefusedInput(f"{min_diversity=} must lie in [0, 1).")
        self.every_n_steps, self.patience, self.min_diversity = every_n_steps, patience, min_diversity
        self._failing_since: dict[str, int] = {}
        self._warned: set[str] = set()

    def state_dict(self) -> dict[str, Any]:
        return {"failing_since": self._failing_since, "warned": sorted(self._warned)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._failing_since, self._warned = dict(state_dict["failing_since"]), set(state_dict["warned"])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: AdversarialModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            self._look(trainer, pl_module, batch)

    @torch.no_grad()
    def _look(self, trainer: Trainer, module: AdversarialModule, data: Any) -> None:
        batch = split_batch(prepare_batch(data, module.channels_last), module.batches_per_step)[0]
        batch = take(batch, slice(_NUM))
        with forked(), evaluating(module):
            torch.manual_seed(mix(module.seed, "watch", trainer.global_step))
            made_of = module.sampling_batch_like(batch, trainer.global_step)
            fake = module.generate(module.generator, made_of)
            pairs = [(batch["image"], *module.condition(batch)), (fake, *module.condition(made_of))]
            accuracy = {name: self._accuracy(module, name, *pairs) for name in module.discriminator_names}
        for name, right in accuracy.items():
            self._judge(
                trainer.global_step,
                {name: right is not None and right > _ALL_RIGHT},
                f"the {name} has been right about more than 99 % of the images: the generator learns nothing. Try a"
                " smaller learning rate for the discriminator, r1_gamma, or label_smoothing.",
            )
        if "latents" not in made_of:  # translations vary as much as their inputs
            return
        if module.num_classes:
            diversities = _diversity_of_classes(batch["image"], fake, batch["label"])
            self._judge(
                trainer.global_step,
                {f"class {label}": diversity < self.min_diversity for label, diversity in diversities.items()},
                f"samples of the same class differ from each other by less than {self.min_diversity:.0%} of what real"
                f" images do, in class {{classes}}: the generator makes one image for each such class. Try a smaller"
                " learning rate, r1_gamma or another model.",
            )
        elif len(fake) > 1:
            diversity = _diversity(batch["image"], fake)
            self._judge(
                trainer.global_step,
                {"samples": diversity < self.min_diversity},
                f"samples differ from each other by {diversity:.1%} of what real images do: the generator has"
                " collapsed. Try a smaller learning rate, r1_gamma or another model.",
            )

    @staticmethod
    def _accuracy(
        module: AdversarialModule, name: str, real: tuple[Tensor, ...], fake: tuple[Tensor, ...]
    ) -> float | None:
        discriminator = module.get_submodule(name)
        on_real, on_fake = (module.classified_as_real(name, flat_scores(discriminator(*seen))) for seen in (real, fake))
        if on_real is None or on_fake is None:
            return None
        return min(on_real.float().mean().item(), 1 - on_fake.float().mean().item())

    def _judge(self, iteration: int, failing: dict[str, bool], sentence: str) -> None:
        """Warns once of what has failed for the patience; classes that collapse at the same check share one warning."""
        for what, fails in failing.items():
            if fails:
                self._failing_since.setdefault(what, iteration)
            else:
                self._failing_since.pop(what, None)
        lasting = {what: self._failing_since[what] for what in failing if failing[what] and what not in self._warned}
        lasting = {what: since for what, since in lasting.items() if iteration - since >= self.patience}
        if lasting:
            self._warned.update(lasting)
            classes = ", ".join(what.removeprefix("class ") for what in lasting)
            rank_zero_warn(f"iterations {min(lasting.values())} to {iteration}: {sentence.format(classes=classes)}")


def _diversity(real: Tensor, fake: Tensor) -> float:
    """Returns the mean distance between two samples divided by that between two real images."""
    ours, theirs = (torch.pdist(images.float().flatten(1)).mean() for images in (fake, real))
    return (ours / theirs).item()


def _diversity_of_classes(real: Tensor, fake: Tensor, labels: Int64[Tensor, " n"]) -> dict[int, float]:
    """Returns the diversity of each class with two images or more."""
    classes, numbers = labels.unique(return_counts=True)
    rows = {label: labels == label for label in classes[numbers > 1].tolist()}
    return {label: _diversity(real[of_one], fake[of_one]) for label, of_one in rows.items()}
