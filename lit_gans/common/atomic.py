"""Files and folders that take the place of others, so that a process that is killed leaves a whole one."""

from __future__ import annotations

import shutil
from pathlib import Path


def replace(new: Path, path: Path) -> None:
    """Puts a file or folder in the place of another one.

    At every moment the old or the new one is whole: under its name, or between two renamings where `kept` finds it.
    """
    old = path.with_name(f"{path.name}.old")
    if path.is_dir() or new.is_dir():
        if path.exists():
            remove(old)
            path.rename(old)
        new.rename(path)
    else:
        new.replace(path)
    remove(old)


def kept(path: Path) -> Path | None:
    """Returns where a checkpoint lies: under its name, or where a replacement was cut short, beside it."""
    return next((place for place in (path, path.with_name(f"{path.name}.old")) if place.exists()), None)


def remove(path: Path) -> None:
    """Removes a file or a folder, where there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
