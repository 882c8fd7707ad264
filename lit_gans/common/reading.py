"""Checks the size of a file before it is read as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from lit_gans.common.errors import RefusedInput
from lit_gans.common.memory import refuse_memory


def read_bounded(path: str | Path, most: int = 2**20) -> bytes:
    """Returns the content of a file.

    Args:
        path: path of the file.
        most: number of bytes beyond which the file is not what it should be.

    Raises:
        OSError: the file cannot be read.
        RefusedInput: the file has more bytes, or grows while it is read.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # 0 for a device, which is read up to the bound
        content = b"" if size > most else file.read(min(size or most, most) + 1)
    if max(size, len(content)) > most:
        raise RefusedInput(f"{path} is damaged or another file: expected at most {most:,} bytes.")
    return content


def refuse_large_file(path: str | Path) -> None:
    """Raises `RefusedInput` for a file that is loaded as a whole and has more bytes than this machine has memory.

    A missing file has none.
    """
    size = Path(path).stat().st_size if Path(path).is_file() else 0
    refuse_memory(size, f"the {size:,} bytes of {path}", "give another file, or a copy of it that is complete")
