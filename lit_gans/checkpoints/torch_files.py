"""Reads files of `torch.save` safely: verifies their checksums before loading, and executes no code from them."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from lit_gans.common.errors import RefusedInput

_OLD = pickle.dumps(torch.serialization.MAGIC_NUMBER, 2)  # first bytes of files of torch before version 1.6


def read_torch_file(path: Path, kind: str = "a checkpoint", map_location: Any = "cpu") -> Any:
    """Loads tensors and plain values from a file that `torch.save` has written, by default to the CPU.

    The file is a zip archive that stores a CRC-32 of each entry. This function verifies these checksums, because
    `torch.load` does not.

    Args:
        path: path of the file.
        kind: expected kind of file, for the error message.
        map_location: see `torch.load`.

    Raises:
        RefusedInput: the file is missing or damaged, or contains anything other than tensors and plain values.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip():
                raise zipfile.BadZipFile
        return torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a malicious file can cause any exception
        raise RefusedInput(f"{path} cannot be read as {kind}: {_reason(path, error)}") from error


def _reason(path: Path, error: Exception) -> str:
    """Returns the reason why a file cannot be read.

    torch's own message is not used, because it suggests `weights_only=False`, which would execute code from the file.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    if isinstance(error, zipfile.BadZipFile):
        with path.open("rb") as file:
            if file.read(len(_OLD)) == _OLD:
                return (
                    "it is in the format of torch before version 1.6, which has no checksums: if you trust the file,"
                    " read it with torch.load and save it again with torch.save."
                )
        return "it was not written by torch, or it is truncated or damaged."
    foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
    if foreign:
        return f"it contains an object of {foreign[1]}; only tensors and plain values are read, no code is executed."
    return "it is damaged, or too large for the memory of this machine."
