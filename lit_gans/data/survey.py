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
from lit_gans.data.images import read_picture, values_of

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
    """

    num: int
    num_classes: int
    height: int
    width: int
    same_shape: bool
    channels: int
    unreadable: int = 0


def survey(paths: Sequence[Path], num_classes: int = 0, as_values: bool = False) -> Survey:
    """Opens up to 200 pictures, chosen at random but always the same.

    Args:
        paths: image files, at least one.
        num_classes: number of their classes.
        as_values: see `read_picture`.
    """
    sizes, channels, unreadable = [], 1, 0
    for path in random.Random(0).sample(list(paths), min(LOOKED_AT, len(paths))):
        try:
            picture = read_picture(path, as_values, [])
            if as_values or isinstance(picture, np.ndarray):
                own, size = _of_values(values_of(picture))
            else:
                own, size = 3 if channels == 1 and _is_colored(picture) else 1, picture.size
        except (RefusedInput, ValueError):  # packing says why
            unreadable += 1
            continue
        channels = max(channels, own)
        sizes.append(size)
    width, height = (int(statistics.median(side)) for side in zip(*(sizes or [(1, 1)]), strict=True))
    ratios = sorted(abs(w * height / (h * width) - 1) for w, h in sizes or [(1, 1)])
    same_shape = ratios[int(0.9 * (len(ratios) - 1))] < 0.1
    return Survey(len(paths), num_classes, height, width, same_shape, channels, unreadable)


def _of_values(values: np.ndarray) -> tuple[int, tuple[int, int]]:
    """Returns the number of channels of an array, which is the shorter one of its outer sides, and width and height."""
    if values.ndim == 2:
        return 1, (values.shape[1], values.shape[0])
    first, second, third = values.shape
    return (third, (second, first)) if third <= first else (first, (third, second))


def _is_colored(picture: Image.Image) -> bool:
    if picture.mode in ("1", "L", "LA", "La", "F") or picture.mode.startswith("I"):
        return False
    small = picture.convert("RGB")
    small.thumbnail((64, 64))
    values = np.asarray(small).astype(int)
    return bool((values.max(-1) - values.min(-1)).max() > _GRAY)
