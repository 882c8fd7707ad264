"""The one folder for what is computed once and read again: packed images, statistics of real images, downloads."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "LIT_GANS_CACHE"


def cache_folder(given: str | Path | None = None) -> Path:
    """Returns `given`, else the folder that `LIT_GANS_CACHE` names, else `lit_gans` in the user's cache.

    The user's cache is `XDG_CACHE_HOME` where that is an absolute path, else `~/.cache`: the XDG Base Directory
    Specification, version 0.8, which ignores relative paths. The folder need not exist.
    """
    if given or os.environ.get(VARIABLE):
        return Path(given or os.environ[VARIABLE]).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "lit_gans"
