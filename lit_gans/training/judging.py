"""What discriminators see and how they are penalized: augmentation of all images, R1 and R2."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

from torch import Tensor, nn

from lit_gans.checkpoints.format import FORMAT_KEY, from_plain
from lit_gans.common.compilation import uncompiled
from lit_gans.common.noise import Noise
from lit_gans.strategies.contracts import sharding
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.training import operations
from lit_gans.training.augment import NUM_NUMBERS, Augmentation, augmented
from lit_gans.training.augmentation import EVERY, Augmenter, is_due, new_state, observed
from lit_gans.training.batch import Batch, Inputs, doubt_about_range
from lit_gans.training.finite import LOSS, PENALTY, SCALE, FiniteCheck
from lit_gans.training.operations import transformed
from lit_gans.training.optimization import OptimizedModule
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty
from lit_gans.training.schedules import Number, is_zero
from lit_gans.training.scored import Scored, flat_scores, loss_of, scores_of

logger = logging.getLogger(__name__)


class JudgedModule(OptimizedModule):
    """Base class of modules whose images are judged by discriminators.

    Args:
        r1_gamma, r2_gamma, r1_every, share_scores, diffaugment, augmentation: see `AdversarialModule`.
        **kwargs: see `OptimizedModule`.
    """

    discriminator: nn.Module  # or one attribute for each of `discriminator_names`
    discriminator_names: ClassVar[tuple[str, ...]] = ("discriminator",)

    def __init__(
        self,
        r1_gamma: Number,
        r2_gamma: Number,
        r1_every: int,
        share_scores: bool,
        diffaugment: tuple[Augmentation, ...],
        augmentation: Augmenter | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.r1_gamma, self.r2_gamma = from_plain(r1_gamma), from_plain(r2_gamma)
        self.r1_every, self.share_scores = r1_every, share_scores
        self.diffaugment = tuple(diffaugment)
        self.augmentation = from_plain(augmentation)
        self._augmentation_state = new_state()
        self._range_seen = False  # whether the first images of this training were looked at
        self.finite = FiniteCheck((*self.discriminator_names, "generator"))

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> Mapping[str, Tensor | Scored]:
        """Returns the loss of each discriminator with its scores; `fake` has no graph to the generator.

        A scalar without scores is enough where nothing reads the scores.
        """
        raise NotImplementedError

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        """Names of the networks whose gradient is differentiated twice."""
        return () if is_zero(self.r1_gamma) and is_zero(self.r2_gamma) else self.discriminator_names

    def penalty_weights(self, iteration: int) -> dict[str, float]:
        """Returns the weights of R1 ("real") and R2 ("fake") in an iteration; without those that are 0."""
        if iteration % self.r1_every:
            return {}
        weights = {"real": self.now(self.r1_gamma), "fake": self.now(self.r2_gamma)}
        return {kind: weight * self.r1_every for kind, weight in weights.items() if weight}

    def losses_and_penalties(
        self, batch: Batch, fake: Tensor, weights: Mapping[str, float]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor | float]]:
        """Returns the loss of each discriminator, and its penalty with the weights of `penalty_weights`."""
        images = {"real": batch["image"], "fake": fake}
        if self.share_scores:
            images |= {kind: images[kind].detach().requires_grad_(True) for kind in weights}
        seen, seen_fake = self.augmented_images({**batch, "image": images["real"]}, images["fake"])
        penalties: dict[str, Tensor | float] = dict.fromkeys(self.discriminator_names, 0.0)
        if not self.share_scores:
            # computed before the scores, so that FSDP reduces only after the gradients of the penalty exist
            shown = {"real": seen["image"], "fake": seen_fake}
            for name, (kind, weight) in product(self.discriminator_names, weights.items()):
                penalty = r1_penalty(self.get_submodule(name), shown[kind], *self.condition(seen))
                penalties[name] = penalties[name] + weight * penalty
        # a penalty of the scores differentiates their graph twice
        twice = [self.get_submodule(name) for name in self.discriminator_names if self.share_scores and weights]
        with uncompiled(*twice):
            outputs = self.discriminator_losses(seen["image"], seen_fake, seen)
        if self.augmentation is not None and self.augmentation.adapts:
            for name, output in outputs.items():
                self._observe(output, name)
        if self.share_scores:
            for name, (kind, weight) in product(self.discriminator_names, weights.items()):
                output = scores_of(outputs[name], name, "share_scores=true")
                scores = output.real if kind == "real" else output.fake
                penalties[name] = penalties[name] + weight * zero_centered_penalty(images[kind], scores)
        self._add_terms(outputs, penalties)
        return {name: loss_of(output) for name, output in outputs.items()}, penalties

    def _add_terms(self, outputs: Mapping[str, Tensor | Scored], penalties: Mapping[str, Tensor | float]) -> None:
        """Adds penalties and losses to the values that must be finite."""
        for name, output in outputs.items():
            for penalty in (penalties[name], output.penalty if isinstance(output, Scored) else None):
                if isinstance(penalty, Tensor):
                    self.finite.add(PENALTY, name, penalty)
            self.finite.add(LOSS, name, loss_of(output))

    def augmented_images(self, batch: Batch, fake: Tensor) -> tuple[Batch, Tensor]:
        """Returns real and generated images augmented as the discriminators see them, in the same way in every step."""
        real = batch["image"]
        if self.diffaugment:
            of_real, of_fake = batch["diffaugment"].unbind(1)
            real, fake = augmented(real, self.diffaugment, of_real), augmented(fake, self.diffaugment, of_fake)
        if self.augmentation is not None:
            probability = self.augmentation.probability(self._augmentation_state, self.progress)
            of_real, of_fake = batch["augmentation"].unbind(1)
            real, fake = transformed(real, of_real, probability), transformed(fake, of_fake, probability)
        return {**batch, "image": real}, fake

    def augmentation_noise(self, noise: Noise, num: int) -> Inputs:
        """Returns the random numbers of the augmentations of `num` real and `num` generated images."""
        drawn: Inputs = {}
        if self.diffaugment:
            columns = sum(NUM_NUMBERS[name] for name in self.diffaugment)
            drawn["diffaugment"] = noise.uniform("diffaugment", num, 2, columns)
        if self.augmentation is not None:
            drawn["augmentation"] = noise.uniform("augmentation", num, 2, operations.NUM_NUMBERS)
        return drawn

    def adapt_augmentation(self) -> None:
        """Changes the probability of an adaptive augmentation, at the end of an iteration, without waiting for it."""
        if self.augmentation is not None and self.augmentation.adapts and is_due(self.progress.iterations):
            state = self.mean_over_ranks(self._augmentation_state.clone())
            self._augmentation_state = self.augmentation.adapted(state, EVERY * self.progress.images_per_iteration)

    def augmentation_log(self) -> dict[str, Tensor | float]:
        """Returns the probability of the augmentation, which is logged beside the losses; empty without one."""
        if self.augmentation is None:
            return {}
        return {"augmentation/probability": self.augmentation.probability(self._augmentation_state, self.progress)}

    def _observe(self, output: Tensor | Scored, name: str) -> None:
        scores = scores_of(output, name, "an adaptive augmentation")
        margin, fake = flat_scores(scores.real), flat_scores(scores.fake)
        if self.classified_as_real(name, margin) is None:
            margin = margin - fake
        self._augmentation_state = observed(self._augmentation_state, margin)

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor | None:
        """Returns which scores of a discriminator classify an image as real; `None` if its scores have no threshold.

        Args:
            name: name of the discriminator.
            scores: all scores that it returned, as a vector.
        """
        return scores > 0

    # ---- trainings that diverge

    def end_iteration(self, iteration: int) -> None:
        """Raises `FloatingPointError` if the training has diverged, see `FiniteCheck`."""
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, NetworkScaling):
            for network, scale in plugin.scales().items():
                self.finite.add(SCALE, network, scale)
        self.finite.end_iteration(iteration)

    def gather_generator(self) -> None:
        """Gathers the generator, see `SamplingModule`. Every save, sample and measurement begins with it, so that none
        is made of a training that has diverged.
        """
        self.finite.refuse()
        super().gather_generator()

    # ---- Lightning's hooks

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if not self._range_seen:
            self._range_seen = True
            doubt = doubt_about_range(batch)
            if doubt is not None and self.trainer.is_global_zero:
                logger.warning(doubt)

    def on_train_start(self) -> None:
        super().on_train_start()
        self._range_seen = False
        self._augmentation_state = self._augmentation_state.to(self.device)
        strategy = sharding(self.trainer.strategy)
        own = (lambda weight: weight) if strategy is None else strategy.local_shard
        self.finite.start({name: [own(weight) for weight in weights] for name, weights in self._trainable.items()})
        self.end_iteration(self.trainer.global_step)

    def on_train_end(self) -> None:
        super().on_train_end()
        self.finite.start({})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.augmentation is not None and self.augmentation.adapts:
            checkpoint[FORMAT_KEY]["augmentation"] = self.mean_over_ranks(self._augmentation_state.clone()).cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._augmentation_state = checkpoint.get(FORMAT_KEY, {}).get("augmentation", new_state())
