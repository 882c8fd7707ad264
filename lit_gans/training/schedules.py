"""Schedules of numbers that change during training, such as learning rates and loss weights.

`Schedule` is a base class and not a union of types, so that jsonargparse can select a subclass by its class path.
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
    """Progress of the training at the start of a generator iteration.

    Attributes:
        iterations: number of finished generator iterations.
        images: number of real images that all ranks together have trained on.
        total: total number of generator iterations of the training. 0 if no schedule needs it.
        images_per_iteration: number of real images of all ranks in this iteration. 0 before the first iteration.
    """

    iterations: int = 0
    images: int = 0
    total: int = 0
    images_per_iteration: int = 0

    @property
    def images_seen(self) -> int:
        """Number of real images that all ranks together have trained on at the end of the iteration."""
        return self.images + self.images_per_iteration

    def next(self, iterations: int, num_images: int) -> Progress:
        """Returns the progress at the start of the next iteration, which trains on `num_images` real images.

        Args:
            iterations: number of finished generator iterations.
            num_images: number of real images of all ranks in the next iteration.
        """
        return Progress(iterations, self.images_seen, self.total, num_images)


class Schedule(ABC):
    """Base class of schedules."""

    needs_total = True

    def __post_init__(self) -> None:  # subclasses are dataclasses
        convert_fields(self)

    @abstractmethod
    def at(self, progress: Progress) -> float:
        """Returns the value of the schedule at a given progress."""

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last value of the schedule. All values lie between them."""
        return 1.0, 0.0


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """Keeps the learning rate constant. Other numbers are constant without a schedule."""

    needs_total = False

    def at(self, progress: Progress) -> float:
        return 1.0

    @property
    def ends(self) -> tuple[float, float]:
        return 1.0, 1.0


def _num_iterations(progress: Progress) -> int:
    """Returns the number of iterations of the training, or 1 before the training begins.

    Raises:
        RefusedInput: if the training has no end.
    """
    if progress.iterations and not progress.total:
        raise RefusedInput("a schedule over all iterations needs trainer.max_steps, or over=NUMBER.")
    return progress.total or 1


@dataclass(frozen=True)
class ConstantThenLinearSchedule(Schedule):
    """Keeps the learning rate constant at first, then decays it linearly to zero (Zhu et al. 2017, section 4).

    Args:
        constant_share: fraction of the generator iterations before the decay begins, in [0, 1).
    """

    constant_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.constant_share < 1:
            raise RefusedInput(f"constant_share={self.constant_share} must lie in [0, 1).")

    def at(self, progress: Progress) -> float:
        total = _num_iterations(progress)
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
            raise RefusedInput("over=null means all iterations of the training: set over=NUMBER with unit=images.")
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
        """Returns the elapsed part and the length of the transition, both in `unit`."""
        over = self.over or _num_iterations(progress)
        done = progress.images if self.unit == "images" else progress.iterations
        return min(done, over), over


@dataclass(frozen=True)
class LinearSchedule(_Transition):
    """Changes linearly from `start` to `end`. The defaults decay a learning rate to zero at the last iteration.

    Args:
        start: value at the beginning. For a learning rate, all values are factors of `lr`.
        end: value at the end, and in all iterations after the end.
        over: number of generator iterations or images from start to end. null means all iterations of the training.
        unit: unit of `over`. `images` counts the real images that all ranks together train on.
    """

    def at(self, progress: Progress) -> float:
        done, over = self._elapsed(progress)
        return (self.start * (over - done) + self.end * done) / over


@dataclass(frozen=True)
class CosineSchedule(_Transition):
    """Changes from `start` to `end` along half a cosine period (Loshchilov and Hutter 2017, eq. 5, no restarts).

    Args:
        start: value at the beginning. For a learning rate, all values are factors of `lr`.
        end: value at the end, and in all iterations after the end.
        over: number of generator iterations or images from start to end. null means all iterations of the training.
        unit: unit of `over`. `images` counts the real images that all ranks together train on.
    """

    def at(self, progress: Progress) -> float:
        done, over = self._elapsed(progress)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * done / over)) / 2


Number = float | Schedule


def ends(number: Number) -> tuple[float, float]:
    """Returns the first and the last value of a number or schedule. All values lie between them."""
    return number.ends if isinstance(number, Schedule) else (number, number)


def value_at(number: Number, progress: Progress) -> float:
    """Returns the value of a number or schedule at a given progress."""
    return number.at(progress) if isinstance(number, Schedule) else number


def is_zero(number: Number) -> bool:
    """Returns whether a number or schedule is 0 during the whole training."""
    return ends(number) == (0, 0)


_LARGEST_WEIGHT = 1e6  # maximum weight of a loss term; a larger weight is most likely a typo


def refuse_weights(**weights: Number) -> None:
    """Raises `RefusedInput` if a loss weight is negative, not a number, or above 1,000,000.

    If the weight is a schedule, its first and its last value are checked. The error names the first invalid weight.
    """
    for name, weight in weights.items():
        for end in ends(weight):
            if not 0 <= end <= _LARGEST_WEIGHT:
                raise RefusedInput(f"{name}={end} must be at least 0 and at most {_LARGEST_WEIGHT:,.0f}.")
