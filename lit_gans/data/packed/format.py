"""The packed file: all images, decoded and resized once, in a single memory-mapped file.

Layout: images (n, c, s, s) uint8, then n labels and n indices (the position of each image in the source) as
little-endian int64, then a JSON text, its checksum and length, and a magic number.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput

FORMAT_VERSION = 1
OnError = Literal["raise", "skip"]
MARK = b"litgans!"
TAIL = struct.Struct("<IQ8s")  # checksum and length of the JSON text, magic number
_READ = 64  # number of images read at once
_MOST_TEXT = 2**28  # bytes of the JSON text, which lists skipped files


class Source:
    """Pictures by index; must also work in forked processes."""

    def __len__(self) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        """Returns the name of a picture for messages: its path, or its number in a dataset."""
        raise NotImplementedError

    def picture(self, index: int, notes: list[str]) -> Any:
        """Returns a decoded picture, or anything else that the frame accepts.

        Args:
            index: index of the picture.
            notes: list to which notes for the user are appended.

        Raises:
            RefusedInput: the picture cannot be read; the message gives its name and the reason.
        """
        raise NotImplementedError

    def label(self, index: int) -> int:
        """Returns the class of a picture, 0 without classes."""
        return 0


class PerProcess:
    """Opens a resource once per process, since handles of databases and streams must not be shared with forks.

    Args:
        opens: picklable function that opens the resource.
    """

    def __init__(self, opens: Callable[[], Any]) -> None:
        self._opens = opens
        self._opened: tuple[int, Any] | None = None

    def __call__(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self._opens()
        return self._opened[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return PerProcess, (self._opens,)


@dataclass(frozen=True)
class Packed:
    """An opened packed file.

    Args:
        path: path of the file.
        images: memory-mapped images; pages are read on first access.
        labels: class of each image.
        index: position of each image in the source.
        about: content of the JSON text: sizes, checksum, skipped files.
    """

    path: Path
    images: UInt8[Tensor, "n c s s"]
    labels: Int64[Tensor, " n"]
    index: Int64[Tensor, " n"]
    about: dict[str, Any]

    def verify(self) -> None:
        """Verifies the checksum of all images.

        Raises:
            RefusedInput: the images differ from those that were packed.
        """
        checksum = 0
        for images in self.images.split(_READ):
            checksum = zlib.crc32(images.numpy().data, checksum)
        checksum = zlib.crc32(self.labels.numpy().data, checksum)
        if checksum != self.about["checksum"]:
            raise DamagedPacked(f"{self.path} is damaged, its checksum differs: {_AGAIN}")


class DamagedPacked(RefusedInput):
    """A packed file that is not the one that was written; packing again replaces it."""


_AGAIN = "delete it, and it is packed again."


def open_packed(path: Path) -> Packed:
    """Opens a packed file. No memory is taken before the sizes in the file agree with its size.

    Raises:
        DamagedPacked: the file is truncated or damaged.
        RefusedInput: the file was written by another version.
    """
    size = path.stat().st_size
    about, length = _read_about(path, size)
    num, *shape = about["shape"]
    num_bytes = math.prod(about["shape"])
    if size != num_bytes + 16 * num + length + TAIL.size:
        raise DamagedPacked(f"{path} is truncated or has more bytes than it should: {_AGAIN}")
    # copy on write: torch needs writable memory, and the file must not change
    mapped = np.memmap(path, np.uint8, mode="c", shape=(num_bytes + 16 * num,))
    numbers = torch.from_numpy(np.frombuffer(mapped[num_bytes:].tobytes(), "<i8").astype(np.int64).reshape(2, num))
    images = torch.from_numpy(mapped[:num_bytes].reshape(num, *shape))
    return Packed(path, images, numbers[0], numbers[1], about)


def _read_about(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """Returns the JSON text of a packed file and its length in bytes."""
    with path.open("rb") as file:
        file.seek(max(size - TAIL.size, 0))
        tail = file.read()
        if len(tail) < TAIL.size or not tail.endswith(MARK):
            raise DamagedPacked(f"{path} is not a complete packed file, perhaps truncated: {_AGAIN}")
        checksum, length, _ = TAIL.unpack(tail)
        if length > min(size, _MOST_TEXT):
            raise DamagedPacked(f"{path} is damaged at its end: {_AGAIN}")
        file.seek(max(size - TAIL.size - length, 0))
        text = file.read(length)
    if zlib.crc32(text) != checksum:
        raise DamagedPacked(f"{path} is damaged at its end: {_AGAIN}")
    try:
        about = json.loads(text)
        version, shape, _ = about["format_version"], about["shape"], about["checksum"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedPacked(f"{path} is damaged at its end: {_AGAIN}") from error
    if version != FORMAT_VERSION:
        raise RefusedInput(f"{path} has format {version}, this lit_gans reads {FORMAT_VERSION}: {_AGAIN}")
    if not (isinstance(shape, list) and len(shape) == 4 and all(type(n) is int and n > 0 for n in shape)):
        raise DamagedPacked(f"{path} is damaged at its end: {_AGAIN}")
    return about, length


def is_good(path: Path) -> bool:
    """Returns whether a packed file exists and all of it is as it was written.

    Raises:
        RefusedInput: the file was written by another version.
    """
    try:
        open_packed(path).verify()
    except (FileNotFoundError, DamagedPacked):
        return False
    return True
