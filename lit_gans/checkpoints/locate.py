"""Search for a checkpoint by a path: a file, a sharded folder, or the folder of a run."""

from __future__ import annotations

import logging
from pathlib import Path

from lit_gans.checkpoints.sharded import REST
from lit_gans.common.atomic import kept
from lit_gans.common.errors import RefusedInput

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"  # of a run
_NAMES = ("best.ckpt", "last.ckpt")


def find_checkpoint(path: str | Path) -> Path:
    """Returns the checkpoint at `path`; for the folder of a run, its best checkpoint, or the last if there is none.

    Raises:
        RefusedInput: the path does not exist, or is a folder that is neither a run nor a sharded checkpoint.
    """
    path = Path(path)
    if path.is_file() or (path / REST).is_file():
        return path
    if not path.is_dir():
        raise RefusedInput(f"there is no checkpoint at {path}: give the path of a .ckpt file, or the folder of a run.")
    for folder in (path / FOLDER, path):
        for name in _NAMES:
            found = kept(folder / name)
            if found is not None:
                logger.info("checkpoint  %s", found)
                return found
    raise RefusedInput(f"{path} {_what_is_right(path)}")


def _what_is_right(folder: Path) -> str:
    """Returns the end of the message about a folder that is not a checkpoint, which suggests nearby checkpoints."""
    runs = {found.parent.parent for name in _NAMES for found in folder.glob(f"*/{FOLDER}/{name}")}
    if runs:
        return f"holds several runs: name one of them, the newest is {max(runs, key=_age)}."
    files = sorted(folder.glob("*.ckpt"))
    if files:
        return f"holds no best.ckpt and no last.ckpt: name the file, for example {files[-1]}."
    beside = next((found for name in _NAMES if (found := folder.parent / FOLDER / name).exists()), None)
    if beside is not None:
        return f"holds no checkpoint: that of this run is {beside}."
    return f"is neither the folder of a run nor a sharded checkpoint: it has no {FOLDER}/{_NAMES[0]} and no {REST}."


def _age(run: Path) -> float:
    return max(path.stat().st_mtime for path in (run / FOLDER).iterdir())
