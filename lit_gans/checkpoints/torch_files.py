"""Untrusted files of `torch.save`: their checksums and sizes are verified before anything is loaded, no code runs."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from lit_gans.common.errors import RefusedInput


def read_torch_file(path: Path, kind: str = "a checkpoint") -> Any:
    """Loads tensors and plain values on the CPU.

    The file is a zip archive, with a CRC-32 of each entry, which torch itself does not verify. Memory is taken in
    proportion to the size of the file: compressed entries and tensors larger than their storage are refused.

    Args:
        path: path of the file.
        kind: what the file should be, for the message.

    Raises:
        RefusedInput: the file is missing or damaged, or holds anything else than tensors and plain values.
    """
    try:
        _verify(path)
        # storages of a mapped file cannot grow: a tensor that exceeds its storage raises here, before memory is taken
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file may raise anything
        raise RefusedInput(f"{path} cannot be read as {kind}: {_reason(error)}") from error


class _Damaged(Exception):
    """A file whose bytes are not those that were written; the message says why."""


def _verify(path: Path) -> None:
    """Raises `_Damaged` if an entry differs from its checksum or claims more bytes than the file has."""
    with path.open("rb") as file:
        if not file.read(4):
            raise _Damaged("it is empty.")
        if not zipfile.is_zipfile(file):
            raise _Damaged("torch did not write it, or it is truncated.")
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if compressed or sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise _Damaged("its entries are larger than the file.")
            damaged = archive.testzip()
            if damaged:
                raise _Damaged(f"it is damaged, the checksum of {damaged} differs.")


def _reason(error: Exception) -> str:
    """Returns why a file cannot be read. Replaces torch's message, which suggests `weights_only=False` and thereby the
    execution of code from the file.
    """
    if isinstance(error, _Damaged):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
    if foreign:
        return f"it holds an object of {foreign[1]}; only tensors and plain values are read, no code is executed."
    return "it is damaged."
