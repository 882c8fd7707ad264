"""Augmentation of single images with a probability, which a schedule or the discriminator's overfitting controls
(Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", section 3 and appendix B).

Settings are frozen dataclasses; the state of a training is one tensor, which the module stores in its checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lit_gans.common.annotations import convert_fields
from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.training import ada_operations
from lit_gans.training.ada_operations import Pipeline, transformed
from lit_gans.training.batch import Batch
from lit_gans.training.diffaugment import NUM_NUMBERS, Augmentation, augmented
from lit_gans.training.schedules import Number, Progress, ends, value_at

EVERY = 4  # iterations between two changes of an adaptive probability


class Augmenter(ABC):
    """Base class of augmentations with a probability."""

    adapts = False  # whether the probability depends on the scores of real images
    pipeline: Pipeline  # the operations, see `transformed`

    def __post_init__(self) -> None:  # of the dataclasses that subclasses are
        convert_fields(self)

    @abstractmethod
    def probability(self, state: Tensor, progress: Progress) -> Tensor | float:
        """Returns the probability of each operation in an iteration; `state` is that of `Augmentations`."""

    def adapted(self, state: Tensor, images: int) -> Tensor:
        """Returns the state after iterations with that many real images; unchanged by default."""
        return state


@dataclass(frozen=True)
class Scheduled(Augmenter):
    """Augments with a given probability.

    Args:
        strength: probability of each operation, in [0, 1]; may be a schedule.
        pipeline: the operations: `bgc`, blits, geometry and color, as StyleGAN2-ADA's default, or `r3gan`, the same
            with half the probability for colors, and cutout, as in R3GAN's code.
    """

    strength: Number = 0.5
    pipeline: Pipeline = "bgc"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 <= end <= 1 for end in ends(self.strength)):
            raise RefusedInput(f"strength={self.strength} must lie in [0, 1].")

    def probability(self, state: Tensor, progress: Progress) -> float:
        return value_at(self.strength, progress)


@dataclass(frozen=True)
class Adaptive(Augmenter):
    """Augments as strongly as it takes to keep the discriminator from overfitting (section 3.1).

    Every 4 iterations, the mean sign of the scores of real images, over all ranks, is compared with a target. Where a
    discriminator's scores have no threshold, those of the generated images are subtracted.

    Args:
        target: mean sign of the scores, in (-1, 1).
        over: number of real images in which the probability can change from 0 to 1.
        pipeline: see `Scheduled`.
    """

    target: float = 0.6
    over: int = 500_000
    pipeline: Pipeline = "bgc"

    adapts = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1 < self.target < 1 or self.over < 1:
            raise RefusedInput(f"target={self.target} must lie in (-1, 1), and over={self.over} be at least 1.")

    def probability(self, state: Tensor, progress: Progress) -> Tensor:
        return state[0]

    def adapted(self, state: Tensor, images: int) -> Tensor:
        """Returns the state with the probability of the next iterations.

        Args:
            state: the state, averaged over the ranks.
            images: number of real images since the last change.
        """
        step = torch.sign(state[1] / state[2] - self.target) * (images / self.over)
        return torch.stack([(state[0] + step).clamp(0, 1), torch.zeros_like(step), torch.zeros_like(step)])


class Augmentations:
    """Both kinds of augmentation of all images that the discriminators see, and the state of an adaptive probability.

    Args:
        diffaugment: names of augmentations that are always applied, see `diffaugment.py`.
        augmenter: augmentation with a probability; None for none.

    Attributes:
        state: probability, sum of the signs of scores and their number since the last change, (3,).
    """

    def __init__(self, diffaugment: tuple[Augmentation, ...], augmenter: Augmenter | None) -> None:
        self.diffaugment, self.augmenter = diffaugment, augmenter
        self.state = self.new_state()

    @staticmethod
    def new_state() -> Tensor:
        """Returns the state at the start of a training."""
        return torch.zeros(3)

    @property
    def adapts(self) -> bool:
        """Whether the probability depends on the scores of real images."""
        return self.augmenter is not None and self.augmenter.adapts

    def noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random numbers of the augmentations of `num` real and `num` generated images."""
        drawn: Batch = {}
        if self.diffaugment:
            columns = sum(NUM_NUMBERS[name] for name in self.diffaugment)
            drawn["diffaugment"] = noise.uniform("diffaugment", num, 2, columns)
        if self.augmenter is not None:
            drawn["augmentation"] = noise.uniform("augmentation", num, 2, ada_operations.NUM_NUMBERS)
        return drawn

    def apply(self, batch: Batch, progress: Progress) -> Batch:
        """Returns a batch whose `image` and `fake` are augmented, in the same way in every step."""
        real, fake = batch["image"], batch["fake"]
        if self.diffaugment:
            of_real, of_fake = batch["diffaugment"].unbind(1)
            real, fake = augmented(real, self.diffaugment, of_real), augmented(fake, self.diffaugment, of_fake)
        if self.augmenter is not None:
            probability = self.augmenter.probability(self.state, progress)
            of_real, of_fake = batch["augmentation"].unbind(1)
            pipeline = self.augmenter.pipeline
            real, fake = (
                transformed(images, numbers, probability, pipeline)
                for images, numbers in ((real, of_real), (fake, of_fake))
            )
        return {**batch, "image": real, "fake": fake}

    def observe(self, scores: Tensor) -> None:
        """Adds the signs of scores to the state."""
        signs = scores.detach().float().sign()
        count = torch.full_like(self.state[0], signs.numel())
        self.state = self.state + torch.stack([torch.zeros_like(count), signs.sum(), count])

    def adapt(self, progress: Progress, mean_over_ranks: Callable[[Tensor], Tensor]) -> None:
        """Changes the probability where it is due after an iteration, without waiting for the device."""
        if self.augmenter is not None and self.adapts and progress.iterations % EVERY == EVERY - 1:
            images = EVERY * progress.images_per_iteration
            self.state = self.augmenter.adapted(mean_over_ranks(self.state.clone()), images)

    def log(self, progress: Progress) -> dict[str, Any]:
        """Returns the probability, which is logged beside the losses; empty without one."""
        if self.augmenter is None:
            return {}
        return {"augmentation/probability": self.augmenter.probability(self.state, progress)}
