"""Augmentation of the discriminators' input with a scheduled or adaptive probability (Karras et al. 2020, "Training
Generative Adversarial Networks with Limited Data", section 3 and appendix B).

Each image is augmented independently. The settings are frozen dataclasses. The state is a single tensor, which the
module stores in its checkpoint.
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

EVERY = 4  # number of iterations between two updates of an adaptive probability


class Augmenter(ABC):
    """Base class of augmentations that apply each operation with a probability."""

    adapts = False  # whether the probability depends on the scores of real images
    pipeline: Pipeline  # set of operations, see `transformed`

    def __post_init__(self) -> None:  # subclasses are dataclasses
        convert_fields(self)

    @abstractmethod
    def probability(self, state: Tensor, progress: Progress) -> Tensor | float:
        """Returns the probability of each operation in an iteration; `state` is the state of `Augmentations`."""

    def adapted(self, state: Tensor, images: int) -> Tensor:
        """Returns the state after training on `images` more real images; by default, returns it unchanged."""
        return state


@dataclass(frozen=True)
class Scheduled(Augmenter):
    """Augments images with a fixed or scheduled probability.

    Args:
        strength: probability of each operation, in [0, 1]. It can be a schedule.
        pipeline: set of operations. `bgc` has blits, geometry and color, the default of StyleGAN2-ADA. `r3gan` has the
            same operations with half the probability for color, and cutout, as in R3GAN's code.
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
    """Adapts the augmentation probability to the overfitting of the discriminator (section 3.1).

    Every 4 iterations, it compares the mean sign of the scores of real images over all ranks with a target. If the mean
    is above the target, the probability increases, otherwise it decreases. If a discriminator's scores have no
    threshold, the scores of generated images are subtracted from the scores of real images first.

    Args:
        target: target of the mean sign of the scores, in (-1, 1).
        over: number of real images over which the probability can change from 0 to 1.
        pipeline: see `Scheduled`.
    """

    target: float = 0.6
    over: int = 500_000
    pipeline: Pipeline = "bgc"

    adapts = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1 < self.target < 1 or self.over < 1:
            raise RefusedInput(f"target={self.target} must lie in (-1, 1), and over={self.over} must be at least 1.")

    def probability(self, state: Tensor, progress: Progress) -> Tensor:
        return state[0]

    def adapted(self, state: Tensor, images: int) -> Tensor:
        """Returns the state with the updated probability.

        Args:
            state: the state, averaged over the ranks.
            images: number of real images since the last update.
        """
        step = torch.sign(state[1] / state[2] - self.target) * (images / self.over)
        return torch.stack([(state[0] + step).clamp(0, 1), torch.zeros_like(step), torch.zeros_like(step)])


class Augmentations:
    """Applies both types of augmentation to the discriminators' input, and holds the state of an adaptive probability.

    Args:
        diffaugment: names of augmentations that are always applied, see `diffaugment.py`.
        augmenter: augmentation that is applied with a probability, or None.

    Attributes:
        state: vector (3,) of the probability, the sum of score signs, and the number of score signs. Both are counted
            since the last update. It is updated in place.
    """

    def __init__(self, diffaugment: tuple[Augmentation, ...], augmenter: Augmenter | None) -> None:
        self.diffaugment, self.augmenter = diffaugment, augmenter
        self.state = self.new_state()

    @staticmethod
    def new_state() -> Tensor:
        """Returns the initial state of a training run."""
        return torch.zeros(3)

    @property
    def adapts(self) -> bool:
        """Whether the probability depends on the scores of real images."""
        return self.augmenter is not None and self.augmenter.adapts

    def noise(self, noise: Noise, num: int) -> Batch:
        """Returns the random numbers to augment `num` real and `num` generated images."""
        numbers: Batch = {}
        if self.diffaugment:
            columns = sum(NUM_NUMBERS[name] for name in self.diffaugment)
            numbers["diffaugment"] = noise.uniform("diffaugment", num, 2, columns)
        if self.augmenter is not None:
            numbers["augmentation"] = noise.uniform("augmentation", num, 2, ada_operations.NUM_NUMBERS)
        return numbers

    def apply(self, batch: Batch, progress: Progress) -> Batch:
        """Returns a batch with augmented `image` and `fake`. Both networks' steps apply the same operations."""
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

    def observe(self, is_real: Tensor, sum_over_ranks: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        """Adds to the state which real images are classified as real, for the next update of the probability.

        `sum_over_ranks` adds a tensor over the ranks, if the state must be equal on all ranks at any time.
        """
        signs = 2 * is_real.float() - 1
        self.state[1:].add_(sum_over_ranks(torch.stack([signs.sum(), signs.new_full((), signs.numel())])))

    def adapt(self, progress: Progress, mean_over_ranks: Callable[[Tensor], Tensor]) -> None:
        """Updates an adaptive probability after every `EVERY` iterations, without synchronizing with the device."""
        if self.augmenter is not None and self.adapts and progress.is_due(EVERY, offset=EVERY - 1):
            images = EVERY * progress.images_per_iteration
            self.state.copy_(self.augmenter.adapted(mean_over_ranks(self.state.clone()), images))

    def log(self, progress: Progress) -> dict[str, Any]:
        """Returns the probability, which is logged with the losses. The dict is empty if there is no augmenter."""
        if self.augmenter is None:
            return {}
        return {"augmentation/probability": self.augmenter.probability(self.state, progress)}
