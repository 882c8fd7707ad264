"""Paths as they are shown to users."""

from __future__ import annotations

from pathlib import Path


def shown(path: str | Path) -> Path:
    """Returns a path relative to the current folder, if it is inside that folder."""
    path = Path(path)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
