"""A look at a folder of pictures before a training: how many, how large, how many channels, which classes."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.decoding import is_planar, read_picture, size_of, values_of
from lit_gans.data.images import Frame

LOOKED_AT = 200  # pictures
_GRAY = 4  # levels of 255 by which the channels of a gray picture may differ, after JPEG


@dataclass(frozen=True)
class Survey:
    """What pictures have in common.

    Args:
        num: number of files.
        num_classes: number of classes; 0 for none.
        height, width: medians over the pictures that were looked at, in pixels.
        same_shape: whether the aspect ratios of nine in ten pictures differ by less than a tenth from the median.
        channels: 1 if all of these pictures are gray, otherwise 3; of arrays, as many as they have.
        unreadable: how many of these could not be read.
        reason: path of the first unreadable picture, and why it could not be read.
    """

    num: int
    num_classes: int
    height: int
    width: int
    same_shape: bool
    channels: int
    unreadable: int = 0
    reason: str = ""


def survey(paths: Sequence[Path], num_classes: int = 0, frame: Frame = Frame(None, 3)) -> Survey:
    """Opens up to 200 pictures, chosen at random but always the same.

    Args:
        paths: image files, at least one.
        num_classes: number of their classes.
        frame: how the pictures are read.

    Raises:
        RefusedInput: none of these can be read.
    """
    sizes, channels, reasons = [], 1, []
    for path in random.Random(0).sample(list(paths), min(LOOKED_AT, len(paths))):
        try:
            picture = read_picture(path, [], frame.decoding)
            if isinstance(picture, np.ndarray):
                frame.range_of(picture, str(path))
                own = _channels_of(picture)
            elif frame.channels in (1, 3, 4):
                own = 3 if channels == 1 and _is_colored(picture) else 1
            else:
                own = _channels_of(values_of(picture))
            size = size_of(picture)
        except RefusedInput as error:
            reasons.append(str(error))
            continue
        channels = max(channels, own)
        sizes.append(size)
    if not sizes:
        raise RefusedInput(f"none of the {len(reasons)} pictures that were opened can be read: {reasons[0]}")
    width, height = (int(statistics.median(side)) for side in zip(*sizes, strict=True))
    ratios = sorted(abs(w * height / (h * width) - 1) for w, h in sizes)
    same_shape = ratios[int(0.9 * (len(ratios) - 1))] < 0.1
    return Survey(len(paths), num_classes, height, width, same_shape, channels, len(reasons), "".join(reasons[:1]))


def _channels_of(values: np.ndarray) -> int:
    """Returns the number of channels of an array, or of the pages of one channel."""
    if values.ndim == 4:
        return values.shape[-1] if values.shape[-1] > 1 else len(values)
    return 1 if values.ndim == 2 else values.shape[0 if is_planar(values) else 2]


def _is_colored(picture: Image.Image) -> bool:
    if picture.mode in ("1", "L", "LA", "La"):
        return False
    small = picture.convert("RGB")
    small.thumbnail((64, 64))
    values = np.asarray(small).astype(int)
    return bool((values.max(-1) - values.min(-1)).max() > _GRAY)
