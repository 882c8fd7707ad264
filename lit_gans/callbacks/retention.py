"""Retention of checkpoints of earlier iterations, beside the last and the best one."""

from __future__ import annotations

import re
from pathlib import Path

from lit_gans.common.atomic import duplicate, remove
from lit_gans.common.errors import RefusedInput, refuse_below


class Retention:
    """Keeps the last few checkpoints, and some permanently, as `step-00000500.ckpt`, the number of the iteration.

    They are further names (hard links) of what was written as `last.ckpt`, and cost no time. What is removed depends
    only on the names in the folder, so that a killed run leaves nothing behind that a resumed run would not remove.

    Args:
        keep_last: number of the last checkpoints to keep, including `last.ckpt`.
        keep_every_n_train_steps: checkpoints whose iteration is a multiple of it are kept permanently; None keeps none.
    """

    def __init__(self, keep_last: int, keep_every_n_train_steps: int | None) -> None:
        refuse_below(1, keep_last=keep_last)
        if keep_every_n_train_steps is not None and keep_every_n_train_steps < 1:
            raise RefusedInput(f"{keep_every_n_train_steps=} must be at least 1, or null.")
        self.keep_last, self.every = keep_last, keep_every_n_train_steps

    def is_permanent(self, step: int) -> bool:
        """Returns whether the checkpoint of an iteration is kept permanently."""
        return self.every is not None and step % self.every == 0

    def keep(self, last: Path, step: int) -> None:
        """Keeps a last checkpoint that was just written, and removes those that are no longer among the last.

        Checkpoints of higher iterations, of another training from an earlier checkpoint, stay.
        """
        folder = last.parent
        if self.keep_last > 1 or self.is_permanent(step):
            duplicate(last, numbered(folder, "step", step))
        earlier = sorted(each for each in steps(folder, "step") if each <= step)
        newest = earlier[-self.keep_last :] if self.keep_last > 1 else []
        for each in earlier:
            if each not in newest and not self.is_permanent(each):
                remove(numbered(folder, "step", each))


def numbered(folder: Path, kind: str, step: int) -> Path:
    """Returns the path of the checkpoint of an iteration: `step-00000500.ckpt`."""
    return folder / f"{kind}-{step:08d}.ckpt"


def steps(folder: Path, kind: str) -> list[int]:
    """Returns the iterations of the checkpoints of a kind in a folder."""
    names = (re.fullmatch(rf"{kind}-(\d+)\.ckpt", path.name) for path in folder.glob(f"{kind}-*.ckpt"))
    return [int(name[1]) for name in names if name]
