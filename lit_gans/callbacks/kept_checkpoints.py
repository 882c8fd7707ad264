"""Selects the checkpoints that a run keeps: the best, the most recent, and the permanent checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lit_gans.common.atomic import duplicate, remove


def numbered(folder: Path, kind: str, step: int) -> Path:
    """Returns the path of an iteration's numbered checkpoint, such as `step-00000500.ckpt`."""
    return folder / f"{kind}-{step:08d}.ckpt"


class BestCheckpoints:
    """The iterations with the best values.

    Args:
        num: number of iterations to keep.

    Attributes:
        values: value of each kept iteration, best first.
    """

    def __init__(self, num: int) -> None:
        self.num = num
        self.values: dict[int, float] = {}

    @property
    def step(self) -> int:
        """Iteration with the best value, or 0 if there are no values."""
        return next(iter(self.values), 0)

    @property
    def value(self) -> float | None:
        """The best value, or None if there are no values."""
        return self.values.get(self.step)

    def add(self, step: int, value: float, rank: Callable[[float], Any]) -> list[int]:
        """Adds the value of an iteration, and returns the iterations that are not among the `num` best.

        Args:
            step: the iteration.
            value: value of the iteration.
            rank: function that returns a sort key, which is smaller for better values. If two values are equal, the
                earlier iteration is better.
        """
        values = self.values | {step: value}
        ranked = sorted(values, key=lambda iteration: (rank(values[iteration]), iteration))
        self.values = {iteration: values[iteration] for iteration in ranked[: self.num]}
        return ranked[self.num :]


class RecentCheckpoints:
    """The most recent checkpoints, and the permanent checkpoint of every n-th iteration.

    Args:
        num: number of most recent checkpoints to keep.
        every_n_steps: number of iterations between two permanent checkpoints; None keeps no permanent checkpoints.

    Attributes:
        steps: iterations of the checkpoints that are removed later. It is saved in every checkpoint, so that a resumed
            run removes what a killed run left behind, and nothing else.
    """

    def __init__(self, num: int, every_n_steps: int | None) -> None:
        self.num, self.every_n_steps = num, every_n_steps
        self.steps: list[int] = []

    def is_permanent(self, step: int) -> bool:
        """Returns whether the checkpoint of an iteration is kept permanently."""
        return self.every_n_steps is not None and step % self.every_n_steps == 0

    def add(self, step: int) -> None:
        """Adds the iteration of a checkpoint to `steps`, unless it is permanent. Must be called before the save."""
        if self.num > 1 and not self.is_permanent(step):
            self.steps = sorted({*self.steps, step})

    def update(self, folder: Path, step: int) -> None:
        """Links `last.ckpt` to its numbered name, and removes numbered checkpoints that are no longer kept.

        Both names are hard links to the same bytes. Only checkpoints in `steps` are removed. All other checkpoints are
        kept: the permanent checkpoints of a run with another setting, and checkpoints of later iterations, which were
        saved before this run resumed from an earlier checkpoint.

        Args:
            folder: folder of the checkpoints.
            step: iteration of `last.ckpt`.
        """
        if self.num > 1 or self.is_permanent(step):
            duplicate(folder / "last.ckpt", numbered(folder, "step", step))
        names = (path.stem.removeprefix("step-") for path in folder.glob("step-*.ckpt"))
        iterations = sorted(int(name) for name in names if name.isdecimal() and int(name) <= step)
        newest = iterations[-self.num :] if self.num > 1 else []
        for iteration in self.steps:
            if iteration not in newest and not self.is_permanent(iteration):
                remove(numbered(folder, "step", iteration))
        self.steps = [iteration for iteration in self.steps if iteration in newest]
