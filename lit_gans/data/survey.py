"""Inspects a folder of images before training: their number, sizes, channels and classes."""

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

LOOKED_AT = 200  # maximum number of images to open
_GRAY = 4  # maximum difference between the channels of a gray image, out of 255; JPEG compression causes differences


@dataclass(frozen=True)
class Survey:
    """Summary of a set of image files. All values except `num` and `num_classes` refer to the sample that was opened.

    Args:
        num: number of files.
        num_classes: number of classes; 0 if there are no classes.
        height, width: median height and width of the sampled images, in pixels.
        same_shape: whether the aspect ratios of 90 % of the images differ by less than 10 % from the aspect ratio of
            the median size.
        channels: 1 if all images are gray, otherwise 3. For arrays, the largest number of channels.
        unreadable: for each sampled file that could not be read, its path and the reason.
    """

    num: int
    num_classes: int
    height: int
    width: int
    same_shape: bool
    channels: int
    unreadable: tuple[str, ...] = ()


def survey(paths: Sequence[Path], num_classes: int = 0, frame: Frame = Frame(None, 3)) -> Survey:
    """Opens a random sample of up to 200 images and summarizes them. The sample has a fixed seed.

    Args:
        paths: image files; must not be empty.
        num_classes: number of classes of the images.
        frame: conversion that determines how the files are decoded.

    Raises:
        RefusedInput: no image of the sample can be read.
    """
    sizes, channels, reasons = [], 1, []
    for path in random.Random(0).sample(list(paths), min(LOOKED_AT, len(paths))):
        try:
            picture = read_picture(path, [], frame.decoding)
            if isinstance(picture, np.ndarray):
                frame.range_of(picture, str(path))
                num_channels = _channels_of(picture)
            elif frame.channels in (1, 3, 4):
                num_channels = 3 if channels == 1 and _is_colored(picture) else 1
            else:
                num_channels = _channels_of(values_of(picture))
            size = size_of(picture)
        except RefusedInput as error:
            reasons.append(str(error))
            continue
        channels = max(channels, num_channels)
        sizes.append(size)
    if not sizes:
        raise RefusedInput(f"none of the {len(reasons)} images that were opened can be read: {reasons[0]}")
    width, height = (int(statistics.median(side)) for side in zip(*sizes, strict=True))
    ratios = sorted(abs(w * height / (h * width) - 1) for w, h in sizes)
    same_shape = ratios[int(0.9 * (len(ratios) - 1))] < 0.1
    return Survey(len(paths), num_classes, height, width, same_shape, channels, tuple(reasons))


def _channels_of(values: np.ndarray) -> int:
    """Returns the number of channels of an array. Pages with one channel each count as channels."""
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
