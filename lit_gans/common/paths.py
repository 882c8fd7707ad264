"""Helpers for paths, such as the path of the cache for packed images, statistics of real images, and downloads."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

VARIABLE = "LIT_GANS_CACHE"


def cache_folder(given: str | Path | None = None) -> Path:
    """Returns the path of the cache folder: `given`, the variable `LIT_GANS_CACHE`, or `lit_gans` in the user's cache.

    The first path that is set is used. The user's cache folder is `XDG_CACHE_HOME` if the variable is an absolute path,
    otherwise `~/.cache`. This follows the XDG Base Directory Specification, version 0.8, which ignores relative paths.
    The returned folder might not exist yet.
    """
    if given or os.environ.get(VARIABLE):
        return Path(given or os.environ[VARIABLE]).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "lit_gans"


def short_name(name: str, longest: int = 200) -> str:
    """Shortens the name of a file or folder. Names of up to `longest` bytes stay unchanged.

    A longer name is cut after `longest` bytes, and a hash of 7 more bytes is appended. Most file systems allow names of
    255 bytes.
    """
    content = os.fsencode(name)
    if len(content) <= longest:
        return name
    return f"{content[:longest].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:6]}"


def printable(text: object, encoding: str = "utf-8") -> str:
    """Replaces all characters that an encoding lacks by escape sequences.

    Bytes in file names that are not valid UTF-8 are replaced, too.
    """
    return str(text).encode(encoding, "backslashreplace").decode(encoding)


def shown(path: str | Path) -> Path:
    """Returns a path relative to the current working directory if the path is inside this directory."""
    path = Path(path)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
