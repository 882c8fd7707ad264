"""Functions that read a part of a data source. If the source supports it, each rank reads only its share."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lit_gans.data.contracts import Fingerprinted, Labeled, RealImages


def images_between(
    data: RealImages, start: int, stop: int, batch_size: int = 256
) -> Iterator[UInt8[Tensor, "b c h w"]]:
    """Yields the images of `real_batches` from position `start` up to, but not including, `stop`.

    If `real_batches` has no parameters `start` and `stop`, all images are read; see `RealImages`.
    """
    if _reads_parts(data):
        yield from data.real_batches(batch_size, start=start, stop=stop)  # type: ignore[call-arg]
    else:
        yield from cut(data.real_batches(batch_size), start, stop)


def cut(batches: Iterator[Tensor], start: int, stop: int) -> Iterator[Tensor]:
    """Yields the images from position `start` up to, but not including, `stop`, counted over all batches."""
    position = 0
    for images in batches:
        part = images[max(start - position, 0) : max(stop - position, 0)]
        if len(part):
            yield part
        position += len(images)


def images_in_rows(data: RealImages, rows: Int64[Tensor, " n"]) -> UInt8[Tensor, "n c h w"]:
    """Returns the images of `real_batches` at the positions `rows`, which must be ascending and not empty.

    If `real_batches` has no parameters `start` and `stop`, all images are read; see `RealImages`.
    """
    if _reads_parts(data):
        return torch.cat([image for row in rows.tolist() for image in images_between(data, row, row + 1, 1)])
    selected, start = [], 0
    for images in data.real_batches():
        selected.append(images[rows[(rows >= start) & (rows < start + len(images))] - start])
        start += len(images)
    return torch.cat(selected)


def num_images(data: RealImages) -> int:
    """Returns the number of images of `real_batches`. Reads the images only if the data do not store their number."""
    if isinstance(data, Labeled):
        return len(data.real_labels())
    return data.real_fingerprint().num if isinstance(data, Fingerprinted) else sum(map(len, data.real_batches()))


def _reads_parts(data: RealImages) -> bool:
    return {"start", "stop"} <= inspect.signature(data.real_batches).parameters.keys()
