"""Packed images: all images of a source, decoded and resized once, in a folder of two files.

`images.npy` holds the images (n, c, h, w), uint8 or float32, which are memory-mapped. `rows.jsonl` holds a line for the
source and one for each chunk of consecutive images: their labels, their CRC-32, and which files were skipped. Each line
begins with the CRC-32 of its JSON text.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from lit_gans.common.errors import RefusedInput

IMAGES, ROWS = "images.npy", "rows.jsonl"
DTYPES = (np.uint8, np.float32)


class Source:
    """Pictures by index; must also work in forked processes.

    Attributes:
        labels: class of each picture; None without classes.
        left_out: lines about files that the source leaves out itself, such as files without a class.
    """

    labels: Sequence[int] | np.ndarray | None = None
    left_out: Sequence[str] = ()

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
        return 0 if self.labels is None else int(self.labels[index])

    def domain(self, index: int) -> str:
        """Returns the name of the domain of a picture, in a source of several domains."""
        return ""


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


class DamagedPacked(RefusedInput):
    """Packed images that are not as they were written; packing again replaces them."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is damaged or incomplete: delete it, and it is packed again.")


@dataclass(frozen=True)
class Packed:
    """Opened packed images.

    Args:
        path: path of the folder.
        images: memory-mapped images; pages are read on first access.
        labels: class of each image.
        about: source, skipped files, how often there was something to note about a file, and the lowest and the
            highest value of each kind of file, as shares of its range.
        chunks: number of images and CRC-32 of each chunk.
    """

    path: Path
    images: Shaped[Tensor, "n c h w"]
    labels: Int64[Tensor, " n"]
    about: dict[str, Any]
    chunks: list[tuple[int, int]]

    def verify(self) -> None:
        """Reads all images and compares their checksums.

        Raises:
            DamagedPacked: the images differ from those that were packed.
        """
        parts = self.images.split([num for num, _ in self.chunks])
        for images, (_, checksum) in zip(parts, self.chunks, strict=True):
            if zlib.crc32(images.numpy().data) != checksum:
                raise DamagedPacked(self.path)


def open_packed(path: Path) -> Packed:
    """Opens packed images. No memory is taken before the sizes in the files agree with the files' sizes.

    Raises:
        FileNotFoundError: nothing is packed there.
        DamagedPacked: a file is truncated or damaged.
    """
    try:
        about, *chunks = lines_in(path / ROWS)
        labels = torch.tensor([label for chunk in chunks for label in chunk["labels"]], dtype=torch.int64)
        # copy on write: torch needs writable memory, and the file must not change
        images = np.lib.format.open_memmap(path / IMAGES, mode="c")
        sizes = images.offset + images.nbytes, len(images), images.ndim, images.flags.c_contiguous
        if sizes != ((path / IMAGES).stat().st_size, len(labels), 4, True) or images.dtype not in DTYPES:
            raise DamagedPacked(path)
        skipped = [line for chunk in chunks for line in chunk["skipped"]]
        notes = sum((Counter(chunk["notes"]) for chunk in chunks), Counter())
        skipped = [*about.pop("left_out"), *skipped]
        extents = joined_extents(chunk["extents"] for chunk in chunks)
        about |= {"skipped": skipped, "notes": dict(notes), "extents": extents}
        checksums = [(len(chunk["labels"]), chunk["checksum"]) for chunk in chunks]
        return Packed(path, torch.from_numpy(images), labels, about, checksums)
    except (OSError, RefusedInput):
        raise
    except Exception as error:  # of numpy and json, from what they were given to read
        raise DamagedPacked(path) from error


def joined_extents(parts: Iterable[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Returns the lowest and the highest value of each kind of file in all parts."""
    joined: dict[str, list[float]] = {}
    for part in parts:
        for kind, (low, high) in part.items():
            lowest, highest = joined.get(kind, (low, high))
            joined[kind] = [min(lowest, low), max(highest, high)]
    return joined


def line_of(content: dict[str, Any]) -> bytes:
    """Returns a line of `rows.jsonl`."""
    text = json.dumps(content).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def lines_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of `rows.jsonl`.

    Raises:
        DamagedPacked: a line is incomplete or damaged.
    """
    for line in path.read_bytes().splitlines(keepends=True):
        checksum, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
            raise DamagedPacked(path.parent)
        yield json.loads(text)


def open_good(path: Path, verify: bool = True) -> Packed | None:
    """Opens packed images; None if there are none, or damaged ones, which are found in all images with `verify`."""
    try:
        packed = open_packed(path)
        if verify:
            packed.verify()
    except (FileNotFoundError, NotADirectoryError, DamagedPacked):
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a name that is too long is refused where the images are packed
            raise
        return None
    return packed
