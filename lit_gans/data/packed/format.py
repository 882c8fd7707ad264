"""File format of packed images: all images of a source, decoded and resized once, in a folder with two files.

`images.npy` holds the images (n, c, h, w), uint8 or float32, and is memory-mapped. The first line of `rows.jsonl`
describes the source. Each further line describes a chunk of consecutive images: the labels and the CRC-32 of the
images, and the files that were skipped. Every line begins with the CRC-32 of its JSON text.
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
    """Base class of sources, which return decoded images by index. A source must also work in forked processes.

    Attributes:
        labels: class index of each image; None if there are no classes.
        class_names: names of the classes; empty if they have no names.
        left_out: one line of text for each file that the source itself skips, such as files without a class.
    """

    labels: Sequence[int] | np.ndarray | None = None
    class_names: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        """Returns the name of an image for messages: its path, or its number in a dataset."""
        raise NotImplementedError

    def picture(self, index: int, notes: list[str]) -> Any:
        """Returns a decoded image, or any other object that the `fit` method of the frame accepts.

        Args:
            index: index of the image.
            notes: list to which this method appends notes for the user.

        Raises:
            RefusedInput: the image cannot be read. The message gives its name and the reason.
        """
        raise NotImplementedError

    def label(self, index: int) -> int:
        """Returns the class index of an image, or 0 if there are no classes."""
        return 0 if self.labels is None else int(self.labels[index])

    def domain(self, index: int) -> str:
        """Returns the name of an image's domain if the source has several domains, otherwise an empty string."""
        return ""


class PerProcess:
    """Opens a resource once per process.

    Forked processes must not share handles of databases and streams.

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
    """Raised if packed images are damaged or incomplete. Packing the source again replaces these images."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is damaged or incomplete: delete it, so that the images are packed again.")


@dataclass(frozen=True)
class Packed:
    """Packed images that have been opened for reading.

    Args:
        path: path of the folder.
        images: memory-mapped images. A memory page is read on first access.
        labels: class index of each image.
        about: description of the source, the skipped files, and the number of files for each note. Also contains the
            lowest and the highest value of each kind of file, as fractions of the value range.
        chunks: number of images and CRC-32 of each chunk.
    """

    path: Path
    images: Shaped[Tensor, "n c h w"]
    labels: Int64[Tensor, " n"]
    about: dict[str, Any]
    chunks: list[tuple[int, int]]

    def verify(self) -> None:
        """Reads all images and verifies their checksums.

        Raises:
            DamagedPacked: a checksum does not match.
        """
        parts = self.images.split([num for num, _ in self.chunks])
        for images, (_, checksum) in zip(parts, self.chunks, strict=True):
            if zlib.crc32(images.numpy().data) != checksum:
                raise DamagedPacked(self.path)


def open_packed(path: Path) -> Packed:
    """Opens packed images.

    Before any memory is allocated, the sizes that the headers declare are compared with the sizes of the files.

    Raises:
        FileNotFoundError: there are no packed images at `path`.
        DamagedPacked: a file is truncated or damaged.
    """
    try:
        about, *chunks = lines_in(path / ROWS)
        labels = torch.tensor([label for chunk in chunks for label in chunk["labels"]], dtype=torch.int64)
        # copy-on-write, because torch needs writable memory but the file must not change
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
    except Exception as error:  # numpy and json raise many types of exceptions for damaged files
        raise DamagedPacked(path) from error


def joined_extents(parts: Iterable[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Merges the lowest and the highest values of each kind of file over all parts."""
    joined: dict[str, list[float]] = {}
    for part in parts:
        for kind, (low, high) in part.items():
            lowest, highest = joined.get(kind, (low, high))
            joined[kind] = [min(lowest, low), max(highest, high)]
    return joined


def line_of(content: dict[str, Any]) -> bytes:
    """Encodes a line of `rows.jsonl`, with its checksum."""
    text = json.dumps(content).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def lines_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the decoded lines of `rows.jsonl`.

    Raises:
        DamagedPacked: a line is incomplete or damaged.
    """
    for line in path.read_bytes().splitlines(keepends=True):
        checksum, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
            raise DamagedPacked(path.parent)
        yield json.loads(text)


def open_good(path: Path, verify: bool = True) -> Packed | None:
    """Opens packed images. Returns None if they do not exist or are damaged.

    Damaged pixels are only detected if `verify` is true, which reads all images.
    """
    try:
        packed = open_packed(path)
        if verify:
            packed.verify()
    except (FileNotFoundError, NotADirectoryError, DamagedPacked):
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # for names that are too long, `pack` raises the error
            raise
        return None
    return packed
