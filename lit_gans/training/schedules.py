"""Schedules of numbers that change during training, such as learning rates and loss weights."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from lit_gans.checkpoints.format import to_plain
from lit_gans.common.annotations import convert_fields, converted, field_types
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.common.parsing import register_value


@dataclass(frozen=True)
class Progress:
    """Progress of the training at the start of a generator iteration.

    Attributes:
        iterations: number of finished generator iterations.
        images: number of real images that all ranks together have trained on.
        total: total number of generator iterations of the training. 0 if no schedule needs it.
        images_per_iteration: number of real images of all ranks in this iteration. 0 before the first iteration.
        passed: number of iterations since the previous iteration that trained the discriminators.
    """

    iterations: int = 0
    images: int = 0
    total: int = 0
    images_per_iteration: int = 0
    passed: int = 1

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

    def is_due(self, every: int, offset: int = 0) -> bool:
        """Returns whether one of the iterations `offset`, `offset + every`, ... has come since the previous step."""
        iteration = self.iterations - offset
        return iteration // every > (iteration - self.passed) // every


class Schedule(ABC):
    """Base class of schedules."""

    needs_total = True

    def __post_init__(self) -> None:  # subclasses are dataclasses
        convert_fields(self)

    @classmethod
    def from_plain(cls, plain: str | dict[str, Any]) -> Schedule:
        """Returns the schedule that a class, or a mapping with `class_path` and `init_args`, describes.

        A class is given by its name or its import path. It must already be imported, because checkpoints also contain
        such descriptions.

        Raises:
            RefusedInput: if there is no such class, or if an argument is unknown or invalid.
        """
        arguments: dict[str, Any] = {"class_path": plain} if isinstance(plain, str) else dict(plain)
        path = str(arguments.pop("class_path", ""))
        return _construct(_find(path), {**(arguments.pop("init_args", None) or {}), **arguments})

    @classmethod
    def changed(cls, previous: Schedule | None, changes: Mapping[str, Any]) -> Schedule:
        """Returns a schedule that differs from a previous schedule in some arguments."""
        if "class_path" in changes:
            return cls.from_plain({**changes})
        if previous is None or not fields(previous):  # type: ignore[arg-type]  # subclasses are dataclasses
            owner = "a number" if previous is None else type(previous).__name__
            raise RefusedInput(
                f"{', '.join(changes)}: {owner} has no arguments: first choose a schedule, such as LinearSchedule."
            )
        return _construct(type(previous), {**vars(previous), **changes})

    @abstractmethod
    def at(self, progress: Progress) -> float:
        """Returns the value of the schedule at a given progress."""

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last value of the schedule. All values of the schedule lie between these two values."""
        return 1.0, 0.0


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """Keeps the learning rate constant. Settings other than the learning rate use a plain number instead."""

    needs_total = False

    def at(self, progress: Progress) -> float:
        return 1.0

    @property
    def ends(self) -> tuple[float, float]:
        return 1.0, 1.0


def _num_iterations(progress: Progress) -> int:
    """Returns the number of iterations of the training, or 1 before the training begins.

    Raises:
        RefusedInput: if the training run has no end.
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
        """Whether the schedule depends on the length of the training run."""
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


def _find(path: str) -> type[Schedule]:
    """Returns the class of a schedule by its name or its import path."""
    classes: list[type[Schedule]] = Schedule.__subclasses__()
    for cls in classes:  # the list grows while it is iterated
        classes += cls.__subclasses__()
    by_name = {cls.__name__: cls for cls in classes if not cls.__name__.startswith("_")}
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None) if module else by_name.get(name)
    if not (isinstance(found, type) and issubclass(found, Schedule)):
        raise RefusedInput(f"{path or 'class_path is missing'}: there is no such schedule; {nearest(path, by_name)}")
    return found


def _construct(cls: type[Schedule], arguments: Mapping[str, Any]) -> Schedule:
    types, names = field_types(cls), [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in arguments:
        if name not in names:
            raise RefusedInput(f"{name}: {cls.__name__} has no such argument; {nearest(str(name), names)}")
    return cls(**{name: converted(value, types.get(name), name) for name, value in arguments.items()})


# registered as a type, since jsonargparse would pass on the arguments of a schedule to the schedule that replaces it
register_value(Schedule, to_plain)

Number = float | Schedule


def ends(number: Number) -> tuple[float, float]:
    """Returns the first and the last value of a number or schedule. All values lie between these two values."""
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
