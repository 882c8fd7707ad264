"""What discriminators see and how they are penalised: augmentation of all images, R1 and R2."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

from torch import Tensor, nn

from lit_gans.checkpoints.format import from_plain
from lit_gans.training.augment import Augmentation, augmented
from lit_gans.training.batch import Batch
from lit_gans.training.optimization import OptimizedModule
from lit_gans.training.penalties import r1_penalty, zero_centred_penalty
from lit_gans.training.schedules import Number, is_zero
from lit_gans.training.scored import Scored, loss_of, scores_of


class JudgedModule(OptimizedModule):
    """Base class of modules whose images are judged by discriminators.

    Args:
        r1_gamma, r2_gamma, r1_every, share_scores, diffaugment: see `AdversarialModule`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.r1_gamma, self.r2_gamma = from_plain(r1_gamma), from_plain(r2_gamma)
        self.r1_every, self.share_scores = r1_every, share_scores
        self.diffaugment = tuple(diffaugment)

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> Mapping[str, Tensor | Scored]:
        """Returns the loss of each discriminator with its scores; `fake` has no graph to the generator.

        A scalar without scores is enough where nothing reads the scores.
        """
        raise NotImplementedError

    @property
    def penalised_networks(self) -> tuple[str, ...]:
        """Names of the networks whose gradient is differentiated twice."""
        return () if is_zero(self.r1_gamma) and is_zero(self.r2_gamma) else self.discriminator_names

    def losses_and_penalties(
        self, batch: Batch, fake: Tensor, penalised: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor | float]]:
        """Returns the loss and the weighted penalty of each discriminator."""
        weights = {"real": self.now(self.r1_gamma), "fake": self.now(self.r2_gamma)} if penalised else {}
        weights = {kind: weight * self.r1_every for kind, weight in weights.items() if weight}
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
        outputs = self.discriminator_losses(seen["image"], seen_fake, seen)
        if self.share_scores:
            for name, (kind, weight) in product(self.discriminator_names, weights.items()):
                output = scores_of(outputs[name], name, "share_scores=true")
                scores = output.real if kind == "real" else output.fake
                penalties[name] = penalties[name] + weight * zero_centred_penalty(images[kind], scores)
        return {name: loss_of(output) for name, output in outputs.items()}, penalties

    def augmented_images(self, batch: Batch, fake: Tensor) -> tuple[Batch, Tensor]:
        """Returns real and generated images augmented as the discriminators see them, in the same way in every step."""
        if not self.diffaugment:
            return batch, fake
        of_real, of_fake = batch["diffaugment"].unbind(1)
        real = augmented(batch["image"], self.diffaugment, of_real)
        return {**batch, "image": real}, augmented(fake, self.diffaugment, of_fake)
