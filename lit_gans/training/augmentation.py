"""Augmentation of single images with a probability, which a schedule or the discriminator's overfitting controls
(Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", section 3 and appendix B).

Settings are frozen dataclasses; the state of a training is one tensor, which the module stores in its checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.training.schedules import Number, Progress, ends, value_at

EVERY = 4  # iterations between two changes of an adaptive probability


class Augmenter(ABC):
    """Base class of augmentations with a probability."""

    adapts = False  # whether the probability depends on the scores of real images

    @abstractmethod
    def probability(self, state: Tensor, progress: Progress) -> Tensor | float:
        """Returns the probability of each operation in an iteration; `state` is that of `new_state` and `adapted`."""

    def adapted(self, state: Tensor, images: int) -> Tensor:
        """Returns the state after iterations with that many real images; unchanged by default."""
        return state


@dataclass(frozen=True)
class Scheduled(Augmenter):
    """Augments with a given probability.

    Args:
        strength: probability of each operation, in [0, 1]; may be a schedule.
    """

    strength: Number = 0.5

    def __post_init__(self) -> None:
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
    """

    target: float = 0.6
    over: int = 500_000

    adapts = True

    def __post_init__(self) -> None:
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


def is_due(iteration: int) -> bool:
    """Returns whether an adaptive probability changes after an iteration."""
    return iteration % EVERY == EVERY - 1


def new_state() -> Tensor:
    """Returns the state at the start of a training: probability, sum of the signs of scores, number of scores."""
    return torch.zeros(3)


def observed(state: Tensor, scores: Tensor) -> Tensor:
    """Returns the state with the signs of further scores."""
    signs = scores.detach().float().sign()
    return state + torch.stack([torch.zeros_like(state[0]), signs.sum(), torch.full_like(state[0], signs.numel())])
