"""Search for the newest good checkpoint of a run, for when the newest one is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import FOLDER
from lit_gans.checkpoints.sharded import read_rest, verify_shards
from lit_gans.common.atomic import kept
from lit_gans.common.errors import RefusedInput

logger = logging.getLogger(__name__)

_LAST = "last.ckpt"
_LONGEST = 2**16  # bytes of a line of metrics.csv that are read at once


def verified_iteration(path: Path) -> int:
    """Verifies a checkpoint and returns its iteration.

    Raises:
        RefusedInput: the checkpoint is missing or damaged.
    """
    if path.is_dir():
        checkpoint = read_rest(path)
        verify_shards(path, checkpoint)
    else:
        checkpoint = read_checkpoint(path)
    iteration = checkpoint.get("global_step", 0)
    if not isinstance(iteration, int):
        raise RefusedInput(f"{path} is not a Lightning checkpoint: its global_step is not a number.")
    return iteration


def checkpoints_of(run: Path) -> list[Path]:
    """Returns all checkpoints in the folder of a run, whether they are good or damaged."""
    folder = run / FOLDER
    return sorted([*folder.glob("*.ckpt"), *folder.glob("*.ckpt.old")])


def newest_good(run: Path) -> tuple[Path, int] | None:
    """Returns the newest good checkpoint of a run and its iteration, or None if it has no checkpoint.

    It is the last checkpoint or, if that is missing or damaged, the good one with the highest iteration; a warning then
    names the damaged checkpoint, and what is lost.

    Raises:
        RefusedInput: every checkpoint is damaged; a new training must not replace them silently.
    """
    last = kept(run / FOLDER / _LAST)
    damage: list[str] = []
    if last is not None:
        try:
            return last, verified_iteration(last)
        except RefusedInput as error:
            damage.append(str(error))
    good: list[tuple[int, Path]] = []
    for path in checkpoints_of(run):
        try:
            if path != last:
                good.append((verified_iteration(path), path))
        except RefusedInput as error:
            damage.append(str(error))
    if good:
        iteration, path = max(good)
        reasons = damage if last else [f"{run / FOLDER / _LAST} is missing.", *damage]
        _warn(" ".join([*reasons, _loss(run, path, iteration)]))
        return path, iteration
    if damage:
        raise RefusedInput(" ".join([*damage, f"{run} has no other checkpoint; resume=none starts a new run."]))
    return None


def resume_point(resume: str, folder: Path) -> tuple[Path | None, int]:
    """Returns the checkpoint to resume from, verified, and its iteration; None and 0 for a new run.

    Args:
        resume: `none`, `auto` (the newest good checkpoint in `folder`), or the path of a checkpoint or of the folder of
            a run.
        folder: folder of this run.

    Raises:
        RefusedInput: the checkpoint does not exist or is damaged.
    """
    if resume == "none":
        return None, 0
    path = folder if resume == "auto" else Path(resume)
    if not path.exists() and resume != "auto":
        raise RefusedInput(f"resume={resume}: there is no such checkpoint; resume=auto takes the newest run.")
    return newest_good(path) or ((None, 0) if resume == "auto" else (path, verified_iteration(path)))


def _loss(run: Path, path: Path, iteration: int) -> str:
    """Returns which checkpoint is used instead, and which iterations are lost."""
    reached = _last_logged(run / "metrics.csv")
    until = f" {iteration + 1} to {reached}, the last in metrics.csv," if reached > iteration else f" after {iteration}"
    return f"Resuming from {path} at iteration {iteration} instead: iterations{until} are trained again."


def _last_logged(metrics: Path) -> int:
    """Returns the last iteration that a run logged, or 0."""
    try:
        with metrics.open("rb") as file:
            cells = (line.partition(b",")[0] for line in iter(lambda: file.readline(_LONGEST), b""))
            return max((int(cell) for cell in cells if cell.isdigit() and len(cell) < 16), default=0)
    except OSError:
        return 0


@rank_zero_only
def _warn(message: str) -> None:
    logger.warning(message)
