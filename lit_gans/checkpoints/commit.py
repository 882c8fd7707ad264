"""Commit markers of sharded checkpoints: a list of all files with sizes and checksums, written last."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from lit_gans.common.errors import RefusedInput
from lit_gans.common.reading import read_bounded

COMMIT = "commit.json"
_MOST_BYTES = 2**24  # of that file, which has about 60 for each file of the folder
FORMAT_VERSION = 1
_READ = 2**20  # bytes

Entry = tuple[int, int]  # bytes and CRC-32


def checksums(folder: Path, rank: int = 0, world_size: int = 1) -> dict[str, Entry]:
    """Returns size and checksum of this rank's share of the files in a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != COMMIT)
    return {path.relative_to(folder).as_posix(): _checksum(path) for path in files[rank::world_size]}


def write_commit(folder: Path, entries: dict[str, Entry]) -> None:
    """Marks a folder as complete."""
    content = {"format_version": FORMAT_VERSION, "files": {name: list(entries[name]) for name in sorted(entries)}}
    (folder / COMMIT).write_text(json.dumps(content, indent=1))


def verify_commit(folder: Path, rank: int = 0, world_size: int = 1) -> None:
    """Verifies this rank's share of the files of a folder.

    Raises:
        RefusedInput: the folder has no commit marker, or a file is missing or differs.
    """
    files = sorted(_files(folder).items())[rank::world_size]
    for name, entry in files:
        path = folder / name
        if not path.is_file():
            raise RefusedInput(f"{folder} is damaged: {name} is missing.")
        if path.stat().st_size != entry[0] or _checksum(path)[1] != entry[1]:
            raise RefusedInput(f"{folder} is damaged: {name} differs from its checksum.")


def _files(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bounded(folder / COMMIT, _MOST_BYTES))
        if content["format_version"] > FORMAT_VERSION:
            raise RefusedInput(
                f"{folder} has format {content['format_version']}, this lit_gans reads up to {FORMAT_VERSION}: upgrade."
            )
        return {str(name): (int(size), int(checksum)) for name, (size, checksum) in content["files"].items()}
    except OSError as error:
        raise RefusedInput(f"{folder} is not complete: its {COMMIT} cannot be read ({error.strerror}).") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RefusedInput(f"{folder} is damaged: its {COMMIT} cannot be read; use another checkpoint.") from error


def _checksum(path: Path) -> Entry:
    size, checksum = 0, 0
    with path.open("rb") as file:
        while block := file.read(_READ):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
    return size, checksum
