"""Schedules: numbers that change over the training, such as learning rates and weights of losses.

A base class rather than a union: jsonargparse distinguishes its subclasses by their class path.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from lit_gans.common.annotations import convert_fields
from lit_gans.common.errors import RefusedInput


@dataclass(frozen=True)
class Progress:
    """Progress of a training at the start of a generator iteration.

    Attributes:
        iterations: number of finished generator iterations.
        images: number of real images that all ranks have trained on.
        total: number of generator iterations of the training; 0 if no schedule needs it.
        images_per_iteration: number of real images of all ranks in this iteration; 0 before the first one.
    """

    iterations: int = 0
    images: int = 0
    total: int = 0
    images_per_iteration: int = 0

    @property
    def images_seen(self) -> int:
        """Number of real images at the end of the iteration."""
        return self.images + self.images_per_iteration

    def next(self, iterations: int, num_images: int) -> Progress:
        """Returns the progress at the start of the next iteration, which trains on `num_images` real images."""
        return Progress(iterations, self.images_seen, self.total, num_images)


class Schedule(ABC):
    """Base class of schedules."""

    needs_total = True

    def __post_init__(self) -> None:  # of the dataclasses that subclasses are
        convert_fields(self)

    @abstractmethod
    def at(self, progress: Progress) -> float:
        """Returns the value in an iteration."""

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last value, between which all values lie."""
        return 1.0, 0.0


@dataclass(frozen=True)
class Constant(Schedule):
    """Keeps a learning rate constant; other numbers need no schedule for it."""

    needs_total = False

    def at(self, progress: Progress) -> float:
        return 1.0

    @property
    def ends(self) -> tuple[float, float]:
        return 1.0, 1.0


def _whole(progress: Progress) -> int:
    """Returns the number of iterations of the training, 1 before it begins.

    Raises:
        RefusedInput: the training has no end.
    """
    if progress.iterations and not progress.total:
        raise RefusedInput("a schedule that lasts for all iterations needs trainer.max_steps, or over=NUMBER.")
    return progress.total or 1


@dataclass(frozen=True)
class ConstantThenLinear(Schedule):
    """Keeps the learning rate constant at first, then decays it linearly to zero (Zhu et al. 2017, section 4).

    Args:
        constant_share: fraction of the generator iterations, in [0, 1), before the decay begins.
    """

    constant_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.constant_share < 1:
            raise RefusedInput(f"constant_share={self.constant_share} must lie in [0, 1).")

    def at(self, progress: Progress) -> float:
        total = _whole(progress)
        return min(1.0, max(0.0, (total - progress.iterations) / (total - self.constant_share * total)))


@dataclass(frozen=True)
class _Transition(Schedule):
    start: float = 1.0
    end: float = 0.0
    over: int | None = None
    unit: Literal["iterations", "images"] = "iterations"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.over is None and self.unit == "images":
            raise RefusedInput("over=null lasts for all iterations of the training: give over=NUMBER with unit=images.")
        if self.over is not None and self.over < 1:
            raise RefusedInput(f"over={self.over} must be at least 1, or null for all iterations of the training.")

    @property
    def needs_total(self) -> bool:
        """Whether the schedule depends on the length of the training."""
        return self.over is None

    @property
    def ends(self) -> tuple[float, float]:
        return self.start, self.end

    def _elapsed(self, progress: Progress) -> tuple[int, int]:
        """Returns how much of the transition is over, and its length."""
        over = self.over or _whole(progress)
        done = progress.images if self.unit == "images" else progress.iterations
        return min(done, over), over


@dataclass(frozen=True)
class Linear(_Transition):
    """Changes linearly from one value to another. The defaults decay a learning rate to zero at the last iteration.

    Args:
        start: value at the beginning; of a learning rate, the factor.
        end: value at the end and from then on.
        over: number of generator iterations or images that the change takes; null takes all iterations.
        unit: what `over` counts; images are the real ones that all ranks train on.
    """

    def at(self, progress: Progress) -> float:
        done, over = self._elapsed(progress)
        return (self.start * (over - done) + self.end * done) / over


@dataclass(frozen=True)
class Cosine(_Transition):
    """Changes along half a period of the cosine (Loshchilov and Hutter 2017, equation 5, without restarts).

    Args:
        start: value at the beginning; of a learning rate, the factor.
        end: value at the end and from then on.
        over: number of generator iterations or images that the change takes; null takes all iterations.
        unit: what `over` counts; images are the real ones that all ranks train on.
    """

    def at(self, progress: Progress) -> float:
        done, over = self._elapsed(progress)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * done / over)) / 2


Number = float | Schedule


def ends(number: Number) -> tuple[float, float]:
    """Returns the first and the last value of a number, between which all of its values lie."""
    return number.ends if isinstance(number, Schedule) else (number, number)


def value_at(number: Number, progress: Progress) -> float:
    """Returns the value of a number in an iteration."""
    return number.at(progress) if isinstance(number, Schedule) else number


def is_zero(number: Number) -> bool:
    """Returns whether a number is 0 during the complete training."""
    return ends(number) == (0, 0)


_LARGEST_WEIGHT = 1e6  # of a loss term; a larger one is most likely a typo


def refuse_weights(**weights: Number) -> None:
    """Raises `RefusedInput` for the first weight of a loss that is negative, not a number, or above 1,000,000, also at
    the end of its schedule.
    """
    for name, weight in weights.items():
        for end in ends(weight):
            if not 0 <= end <= _LARGEST_WEIGHT:
                raise RefusedInput(f"{name}={end} must be at least 0 and at most {_LARGEST_WEIGHT:,.0f}.")
