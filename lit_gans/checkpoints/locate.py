"""Finds the checkpoint at a path, and the newest intact checkpoint of a run."""

from __future__ import annotations

import logging
import os
from importlib.resources import files
from pathlib import Path

from lit_gans.checkpoints.diffusers import is_published
from lit_gans.checkpoints.exported import CONFIG, HUB, WEIGHTS, downloaded, is_exported, read_exported, read_training
from lit_gans.checkpoints.remote import downloaded_here, is_address
from lit_gans.checkpoints.sharded import REST, read_rest, verify_shards
from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.atomic import kept, replaced
from lit_gans.common.errors import RefusedInput, nearest, refusing
from lit_gans.common.lightning import rank_zero_only

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"  # name of the checkpoint folder in the folder of a run
ZOO = "zoo"  # name of this package's folder of pretrained networks, and prefix of their names
_BEST, _LAST = "best.ckpt", "last.ckpt"
_NEAR = ("*.ckpt", f"{FOLDER}/*.ckpt", f"*/{FOLDER}/*.ckpt")  # checkpoints in a folder or in the runs in that folder


def find_checkpoint(path: str | Path) -> Path:
    """Returns the path of the checkpoint at `path`.

    For the folder of a run, this is the best checkpoint, or else the last checkpoint.

    Args:
        path: path of a checkpoint file, of a sharded checkpoint, of the folder of a run, or of a folder that `lit-gans
            export` or diffusers wrote. `zoo/NAME` names pretrained networks of this package, and `hf://owner/name`
            names a repository of the Hugging Face Hub. URLs such as `s3://bucket/run` are downloaded to a temporary
            folder.

    Raises:
        RefusedInput: the path does not exist, or is a folder without a checkpoint.
    """
    if str(path).startswith(HUB):
        return downloaded(str(path))
    path = downloaded_here(str(path)) if is_address(path) else Path(path)
    with refusing(f"{path} cannot be opened"):  # for example because of missing permissions or a name that is too long
        return _at(path)


def _at(path: Path) -> Path:
    if path.parent == Path(ZOO) and not path.exists():
        return _zoo_folder(path.name)
    if path.name == WEIGHTS and is_exported(path.parent) and b'"class_path"' in (path.parent / CONFIG).read_bytes():
        raise RefusedInput(
            f"{path} is a part of the networks that lit-gans export wrote: use its folder {path.parent}."
        )
    if path.is_file() or (path / REST).is_file():
        return path
    if not path.is_dir():
        raise RefusedInput(
            f"there is no checkpoint at {path}: use the path of a .ckpt file or of the folder of a"
            f" run{_newest_in(path.parent)}."
        )
    checkpoint = _best_in(path / FOLDER)  # first, because networks can be exported to the folder of their run
    if checkpoint is None and (is_exported(path) or is_published(path)):
        return path
    checkpoint = checkpoint or _best_in(path)
    if checkpoint is not None:
        logger.info("checkpoint  %s", checkpoint)
        return checkpoint
    raise RefusedInput(
        f"{path} is neither the folder of a run nor a sharded checkpoint: it contains no {FOLDER}/{_BEST}, no"
        f" {FOLDER}/{_LAST} and no {REST}{_newest_in(path)}."
    )


def _best_in(folder: Path) -> Path | None:
    """Returns the best or the last checkpoint in a folder, or the newest checkpoint of Lightning's `ModelCheckpoint`.

    The default names of `ModelCheckpoint` look like `epoch=0-step=10.ckpt`. Returns None if there are no such files.
    """
    of_lightning = sorted(folder.glob("*step=*.ckpt"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return kept(folder / _BEST) or kept(folder / _LAST) or next(reversed(of_lightning), None)


def _newest_in(folder: Path) -> str:
    """Returns a hint that names the newest checkpoint in or below a folder, or an empty string."""
    near = [path for pattern in _NEAR for path in folder.glob(pattern) if path.exists()]
    newest = max(near, key=lambda path: path.stat().st_mtime, default=None)
    return "" if newest is None else f"; the newest checkpoint in {folder} is {newest}"


def run_of(checkpoint: Path) -> Path:
    """Returns the folder of the run that a checkpoint belongs to.

    For a checkpoint outside of a run, returns the folder that contains the checkpoint.
    """
    return checkpoint.parent.parent if checkpoint.parent.name == FOLDER else checkpoint.parent


def zoo() -> Path:
    """Returns the folder of the pretrained networks in this package."""
    return Path(str(files("lit_gans"))) / ZOO


def _zoo_folder(name: str) -> Path:
    folder = zoo() / name
    if not is_exported(folder):
        raise RefusedInput(f"{ZOO}/{name}: {nearest(name, (path.parent.name for path in zoo().glob(f'*/{CONFIG}')))}")
    return folder


def checkpoints_of(run: Path) -> list[Path]:
    """Returns all checkpoints in the folder of a run, including damaged checkpoints."""
    folder = run / FOLDER
    if not os.path.isdir(folder):
        return []
    return sorted([*folder.glob("*.ckpt"), *folder.glob(replaced(Path("*.ckpt")).name)])


def verified_iteration(path: Path) -> int:
    """Verifies a checkpoint and returns its iteration.

    Raises:
        RefusedInput: the checkpoint is missing or damaged, or has no optimizer states.
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
    if "state_dict" in content and "optimizer_states" not in content:
        raise RefusedInput(
            f"{path} contains networks without their optimizers, as lit-gans average writes them: use"
            f" init_from={path} to start a new run from these networks, or resume last.ckpt of the run."
        )
    return iteration


def newest_good(run: Path) -> tuple[Path, int] | None:
    """Returns the newest intact checkpoint of a run and its iteration, or None if the run has no checkpoint.

    If the last checkpoint is intact, it is returned. Otherwise, the intact checkpoint with the highest iteration is
    returned, and a warning names the damaged checkpoints and the iterations that are lost.

    Raises:
        RefusedInput: all checkpoints are damaged. This is an error, because a new run must not overwrite them silently.
    """
    last = kept(run / FOLDER / _LAST)
    damage = [] if last else [f"{run / FOLDER / _LAST} is missing."]
    good: list[tuple[int, Path]] = []
    for path in sorted(checkpoints_of(run), key=lambda path: path != last):  # checks the last checkpoint first
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
    """Verifies the checkpoint to resume from, and returns its path and iteration. For a new run, returns None and 0.

    Args:
        resume: `none` for a new run, `auto` for the newest intact checkpoint in `folder`, or the path of a checkpoint
            or of the folder of a run.
        folder: folder of this run.

    Raises:
        RefusedInput: the checkpoint does not exist or is damaged.
    """
    if resume == "none":
        return None, 0
    if is_address(resume):
        raise RefusedInput(f"resume={resume} is a URL: use hydra.run.dir=URL resume=auto to continue the run there.")
    path = folder if resume == "auto" else Path(resume)
    with refusing(f"resume={resume} cannot be opened"):
        if not path.exists() and resume != "auto":
            raise RefusedInput(
                f"resume={resume}: there is no such checkpoint; resume=auto resumes from the newest checkpoint."
            )
        newest = newest_good(path)
        if newest is not None or resume == "auto":
            return newest or (None, 0)
        if path.is_dir() and not is_exported(path) and not (path / REST).is_file():
            raise RefusedInput(
                f"resume={resume}: there is no checkpoint in this folder; use the folder of a run, or the path of a"
                f" checkpoint{_newest_in(path)}."
            )
        return path, verified_iteration(path)


def _loss(run: Path, path: Path, iteration: int) -> str:
    """Returns a sentence that names the checkpoint to resume from and the iterations that are lost."""
    reached = _last_logged(run / "metrics.csv")
    until = f" {iteration + 1} to {reached}, the last in metrics.csv," if reached > iteration else f" after {iteration}"
    return f"Resuming from {path} at iteration {iteration} instead: iterations{until} are trained again."


def _last_logged(metrics: Path) -> int:
    """Returns the last iteration in a run's `metrics.csv`, or 0 if the file is missing or has no rows."""
    try:
        cells = [line.partition(b",")[0] for line in metrics.read_bytes().splitlines()]
    except OSError:
        return 0
    return max((int(cell) for cell in cells if cell.isdigit() and len(cell) < 16), default=0)


@rank_zero_only
def _warn(message: str) -> None:
    logger.warning(message)
