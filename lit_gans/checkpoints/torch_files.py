"""Files of `torch.save`: their checksums are verified before anything is loaded, and no code in them runs."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from lit_gans.common.errors import RefusedInput


def read_torch_file(path: Path, kind: str = "a checkpoint", map_location: Any = "cpu") -> Any:
    """Loads tensors and plain values, by default on the CPU.

    The file is a zip archive, with a CRC-32 of each entry, which torch itself does not verify.

    Args:
        path: path of the file.
        kind: what the file should be, for the message.
        map_location: see `torch.load`.

    Raises:
        RefusedInput: the file is missing or damaged, or holds anything else than tensors and plain values.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip():
                raise zipfile.BadZipFile
        return torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a hostile file may raise anything
        raise RefusedInput(f"{path} cannot be read as {kind}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Returns why a file cannot be read. Replaces torch's message, which suggests `weights_only=False` and thereby the
    execution of code from the file.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    if isinstance(error, zipfile.BadZipFile):
        return "torch did not write it, or it is truncated or damaged."
    foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
    if foreign:
        return f"it holds an object of {foreign[1]}; only tensors and plain values are read, no code is executed."
    return "it is damaged, or too large for the memory of this machine."
