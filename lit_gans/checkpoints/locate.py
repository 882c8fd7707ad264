"""Search for a checkpoint by a path, and for the newest good one of a run."""

from __future__ import annotations

import logging
import os
from importlib.resources import files
from pathlib import Path

from lit_gans.checkpoints.exported import CONFIG, HUB, downloaded, is_exported, read_exported, read_training
from lit_gans.checkpoints.remote import downloaded_here, is_address
from lit_gans.checkpoints.sharded import REST, read_rest, verify_shards
from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.atomic import kept
from lit_gans.common.errors import RefusedInput, nearest, refusing
from lit_gans.common.lightning import rank_zero_only

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"  # of a run
ZOO = "zoo"  # folder of the networks that are part of the package, and prefix of their names
_BEST, _LAST = "best.ckpt", "last.ckpt"


def find_checkpoint(path: str | Path) -> Path:
    """Returns the checkpoint at `path`; for the folder of a run, its best checkpoint, or the last if there is none.

    Args:
        path: path of a file, of a sharded checkpoint, of the folder of a run, or of a folder of `lit-gans export`;
            `zoo/NAME`, networks of this package; `hf://owner/name`, a repository of the Hugging Face Hub; or an
            address such as `s3://bucket/run`, from which it is downloaded to a temporary folder.

    Raises:
        RefusedInput: the path does not exist, or is a folder without a checkpoint.
    """
    if str(path).startswith(HUB):
        return downloaded(str(path))
    path = downloaded_here(str(path)) if is_address(path) else Path(path)
    with refusing(f"{path} cannot be opened"):  # a name that is too long, or permissions
        return _at(path)


def _at(path: Path) -> Path:
    if path.parent == Path(ZOO) and not path.exists():
        return _of_the_zoo(path.name)
    if path.is_file() or (path / REST).is_file() or is_exported(path):
        return path
    if not path.is_dir():
        raise RefusedInput(
            f"there is no checkpoint at {path}: give the path of a .ckpt file, or the folder of a"
            f" run{_newest_in(path.parent)}."
        )
    for folder in (path / FOLDER, path):
        for name in (_BEST, _LAST):
            found = kept(folder / name)
            if found is not None:
                logger.info("checkpoint  %s", found)
                return found
        others = _of_lightning(folder)
        if others:
            logger.info("checkpoint  %s", others[-1])
            return others[-1]
    raise RefusedInput(
        f"{path} is neither the folder of a run nor a sharded checkpoint: it has no {FOLDER}/{_BEST}, no"
        f" {FOLDER}/{_LAST} and no {REST}{_newest_in(path)}."
    )


def _of_lightning(folder: Path) -> list[Path]:
    """Returns the checkpoints of Lightning's own `ModelCheckpoint` in a folder, such as `epoch=0-step=10.ckpt`, the
    newest last.
    """
    return sorted(folder.glob("*step=*.ckpt"), key=lambda path: (path.stat().st_mtime_ns, path.name))


def _newest_in(folder: Path) -> str:
    """Returns the end of an error message: the newest checkpoint in a folder, or in the runs that are in it, if any."""
    near = [path for pattern in ("*.ckpt", f"*/{FOLDER}/*.ckpt") for path in folder.glob(pattern) if path.exists()]
    return f"; the newest in {folder} is {max(near, key=lambda found: found.stat().st_mtime)}" if near else ""


def run_of(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint's run; of a checkpoint elsewhere, the folder that it is in."""
    return checkpoint.parent.parent if checkpoint.parent.name == FOLDER else checkpoint.parent


def zoo() -> Path:
    """Returns the folder of the networks that are part of this package."""
    return Path(str(files("lit_gans"))) / ZOO


def _of_the_zoo(name: str) -> Path:
    found = zoo() / name
    if not is_exported(found):
        raise RefusedInput(f"{ZOO}/{name}: {nearest(name, (path.parent.name for path in zoo().glob(f'*/{CONFIG}')))}")
    return found


def checkpoints_of(run: Path) -> list[Path]:
    """Returns all checkpoints in the folder of a run, whether they are good or damaged."""
    folder = run / FOLDER
    if not os.path.isdir(folder):
        return []
    return sorted([*folder.glob("*.ckpt"), *folder.glob("*.ckpt.old")])


def verified_iteration(path: Path) -> int:
    """Verifies a checkpoint and returns its iteration.

    Raises:
        RefusedInput: the checkpoint is missing or damaged.
    """
    if is_exported(path):
        read_exported(path)
        content = read_training(path)
    elif path.is_dir():
        content = read_rest(path)
        verify_shards(path)
    else:
        content = read_torch_file(path)
    iteration = content.get("global_step", 0) if isinstance(content, dict) else None
    if not isinstance(iteration, int):
        raise RefusedInput(f"{path} is not a Lightning checkpoint: its global_step is not a number.")
    return iteration


def newest_good(run: Path) -> tuple[Path, int] | None:
    """Returns the newest good checkpoint of a run and its iteration, or None if it has no checkpoint.

    It is the last checkpoint or, if that is missing or damaged, the good one with the highest iteration; a warning then
    names the damaged checkpoint, and what is lost.

    Raises:
        RefusedInput: every checkpoint is damaged; a new training must not replace them silently.
    """
    last = kept(run / FOLDER / _LAST)
    damage = [] if last else [f"{run / FOLDER / _LAST} is missing."]
    good: list[tuple[int, Path]] = []
    for path in sorted(checkpoints_of(run), key=lambda path: path != last):  # the last one first
        try:
            good.append((verified_iteration(path), path))
        except RefusedInput as error:
            damage.append(str(error))
        if path == last and good:
            return path, good[0][0]
    if good:
        iteration, path = max(good)
        _warn(" ".join([*damage, _loss(run, path, iteration)]))
        return path, iteration
    if last or len(damage) > 1:
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
    if is_address(resume):
        raise RefusedInput(f"resume={resume}: hydra.run.dir=ADDRESS resume=auto continues the run at an address.")
    path = folder if resume == "auto" else Path(resume)
    with refusing(f"resume={resume} cannot be opened"):
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
        cells = [line.partition(b",")[0] for line in metrics.read_bytes().splitlines()]
    except OSError:
        return 0
    return max((int(cell) for cell in cells if cell.isdigit() and len(cell) < 16), default=0)


@rank_zero_only
def _warn(message: str) -> None:
    logger.warning(message)
