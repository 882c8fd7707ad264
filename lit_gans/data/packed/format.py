"""The packed store: every picture decoded and resized once, in one file that is mapped into memory.

The file: images (n, c, s, s) uint8, then n labels and n rows of the index (where in the source an image comes from) as
little-endian int64, then a JSON text, its checksum and length, and the mark.
"""

from __future__ import annotations

import json
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
TAIL = struct.Struct("<IQ8s")  # checksum and length of the JSON text, mark
_READ = 64  # images that are read at once


class Source:
    """Pictures that can be asked for one by one, also in copies of the source that forked processes have."""

    def __len__(self) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        """Returns what a person calls a picture: its path, or a number in a data set."""
        raise NotImplementedError

    def picture(self, index: int, notes: list[str]) -> Any:
        """Returns a decoded picture, or what else the frame takes; `notes` takes up what a user may want to know.

        Raises:
            RefusedInput: it cannot be read, with its name and the reason.
        """
        raise NotImplementedError

    def label(self, index: int) -> int:
        """Returns the class of a picture, 0 where there are none."""
        return 0


class PerProcess:
    """Something that every process opens for itself: handles of databases and streams are not for forked processes.

    Args:
        opens: opens it, and can be pickled.
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
        path: of the file.
        images: mapped into memory; pages are read when they are asked for.
        labels: class of each image.
        index: where in its source each image comes from.
        about: what the JSON text says: sizes, checksum, pictures left out.
    """

    path: Path
    images: UInt8[Tensor, "n c s s"]
    labels: Int64[Tensor, " n"]
    index: Int64[Tensor, " n"]
    about: dict[str, Any]

    def verify(self) -> None:
        """Reads all images once.

        Raises:
            RefusedInput: they are not what was packed.
        """
        checksum = 0
        for part in self.images.split(_READ):
            checksum = zlib.crc32(part.numpy(), checksum)
        checksum = zlib.crc32(self.labels.numpy(), checksum)
        if checksum != self.about["checksum"]:
            raise RefusedInput(f"{self.path} is damaged, its checksum differs: delete it, and it is packed again.")


def open_packed(path: Path) -> Packed:
    """Opens a packed file.

    Raises:
        RefusedInput: it was cut short, damaged, or written by another version.
    """
    again = "delete it, and it is packed again."
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - TAIL.size, 0))
        tail = file.read()
        if len(tail) < TAIL.size or not tail.endswith(MARK):
            raise RefusedInput(f"{path} is no whole packed file, perhaps cut short: {again}")
        checksum, length, _ = TAIL.unpack(tail)
        file.seek(max(size - TAIL.size - length, 0))
        text = file.read(length)
    if zlib.crc32(text) != checksum:
        raise RefusedInput(f"{path} is damaged at its end: {again}")
    about = json.loads(text)
    if about["format_version"] != FORMAT_VERSION:
        raise RefusedInput(
            f"{path} has format {about['format_version']}, this lit_gans reads {FORMAT_VERSION}: {again}"
        )
    num, *shape = about["shape"]
    num_bytes = num * int(np.prod(shape))
    if size != num_bytes + 16 * num + length + TAIL.size:
        raise RefusedInput(f"{path} was cut short or holds more than it says: {again}")
    # copy on write: torch asks for writable memory, and nobody may change the file
    mapped = np.memmap(path, np.uint8, mode="c", shape=(num_bytes + 16 * num,))
    numbers = torch.from_numpy(np.frombuffer(mapped[num_bytes:].tobytes(), "<i8").astype(np.int64).reshape(2, num))
    images = torch.from_numpy(mapped[:num_bytes].reshape(num, *shape))
    return Packed(path, images, numbers[0], numbers[1], about)
