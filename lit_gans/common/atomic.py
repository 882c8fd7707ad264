"""Atomic replacement of files and folders: a killed process leaves either the old or the new one, complete."""

from __future__ import annotations

import shutil
from pathlib import Path


def replace(new: Path, path: Path) -> None:
    """Replaces a file or folder.

    At any time, the old or the new one is complete: at `path` or, between two renames, where `kept` finds it.
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
    """Returns the path of a complete file or folder: `path` or, after an interrupted replacement, the old one."""
    return next((place for place in (path, path.with_name(f"{path.name}.old")) if place.exists()), None)


def remove(path: Path) -> None:
    """Removes a file or a folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
