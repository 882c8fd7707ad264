"""The cache folder, for packed images, statistics of real images and downloads; and paths as users see them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

VARIABLE = "LIT_GANS_CACHE"


def cache_folder(given: str | Path | None = None) -> Path:
    """Returns `given`, or the folder in `LIT_GANS_CACHE`, or `lit_gans` in the user's cache, whichever is set first.

    The user's cache is `XDG_CACHE_HOME` if that is an absolute path, otherwise `~/.cache`, following the XDG Base
    Directory Specification, version 0.8, which ignores relative paths. The folder may not exist yet.
    """
    if given or os.environ.get(VARIABLE):
        return Path(given or os.environ[VARIABLE]).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "lit_gans"


def short_name(name: str, longest: int = 200) -> str:
    """Returns a name of a file or folder with at most `longest` bytes and a few more: a longer name ends with a hash.

    Most file systems allow 255 bytes.
    """
    content = os.fsencode(name)
    if len(content) <= longest:
        return name
    return f"{content[:longest].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:6]}"


def printable(text: object, encoding: str = "utf-8") -> str:
    """Returns a text with escapes in place of characters that an encoding lacks, and of bytes in file names that are no
    UTF-8.
    """
    return str(text).encode(encoding, "backslashreplace").decode(encoding)


def shown(path: str | Path) -> Path:
    """Returns a path relative to the current folder, if it is inside that folder."""
    path = Path(path)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
