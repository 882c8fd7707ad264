"""DiffAugment: Zhao et al. 2020, "Differentiable Augmentation for Data-Efficient GAN Training".

Differentiable functions augment the discriminators' input, both real and generated images. Each function takes images
in [-1, 1] and one row of random numbers in [0, 1) for each image.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Augmentation = Literal["color", "translation", "cutout", "small_cutout"]
_SHIFT = 1 / 8  # maximum shift in each direction, relative to the image size
_HOLE, _SMALL_HOLE = 1 / 2, 1 / 5  # size of the cutout, relative to the image size
NUM_NUMBERS = {"color": 3, "translation": 2, "cutout": 2, "small_cutout": 2}
Images = Float[Tensor, "n c h w"]


def augmented(images: Images, names: tuple[Augmentation, ...], numbers: Float[Tensor, "n k"]) -> Images:
    """Applies the named augmentations to images, in order.

    Args:
        images: images in [-1, 1].
        names: names of the augmentations.
        numbers: random numbers in [0, 1), with `NUM_NUMBERS[name]` columns for each name.
    """
    # numbers keep their precision: in half precision, numbers just below 1 would become 1, and shift images too far
    columns = torch.split(numbers, [NUM_NUMBERS[name] for name in names], dim=1)
    for name, part in zip(names, columns, strict=True):
        images = _FUNCTIONS[name](images, part)
    return images


def color(images: Images, numbers: Float[Tensor, "n 3"]) -> Images:
    """Adds -0.5 to 0.5 to the brightness, then scales saturation by 0 to 2, and then contrast by 0.5 to 1.5."""
    brightness, saturation, contrast = numbers.to(images.dtype)[:, :, None, None, None].unbind(1)
    images = images + (brightness - 0.5)
    gray = images.mean(1, keepdim=True)
    images = gray + (images - gray) * (2 * saturation)
    mean = images.mean((1, 2, 3), keepdim=True)
    return mean + (images - mean) * (contrast + 0.5)


def translation(images: Images, numbers: Float[Tensor, "n 2"]) -> Images:
    """Shifts images by a whole number of pixels, by at most 1/8 of the size in each direction, and pads with 0."""
    num, _, height, width = images.shape
    rows = torch.arange(height, device=images.device) - _shift(numbers[:, 0], height)
    columns = torch.arange(width, device=images.device) - _shift(numbers[:, 1], width)
    inside = _within(rows, height)[:, None, :, None] & _within(columns, width)[:, None, None, :]
    rows, columns = rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]
    item = torch.arange(num, device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[item, rows, columns].permute(0, 3, 1, 2) * inside


def cutout(images: Images, numbers: Float[Tensor, "n 2"]) -> Images:
    """Sets a rectangle of half the height and half the width to 0. Its center is anywhere in the image."""
    return _cut_out(images, numbers, _HOLE)


def small_cutout(images: Images, numbers: Float[Tensor, "n 2"]) -> Images:
    """Sets a rectangle of 1/5 of the height and width to 0, as in the code of Projected GAN (Sauer et al. 2021)."""
    return _cut_out(images, numbers, _SMALL_HOLE)


def _cut_out(images: Images, numbers: Float[Tensor, "n 2"], share: float) -> Images:
    _, _, height, width = images.shape
    hidden = []
    for column, size in ((0, height), (1, width)):
        hole = int(size * share + 0.5)
        start = (numbers[:, column, None] * (size + 1 - hole % 2)).floor() - hole // 2
        position = torch.arange(size, device=images.device) - start
        hidden.append(_within(position, hole))
    return images * ~(hidden[0][:, None, :, None] & hidden[1][:, None, None, :])


def _shift(numbers: Float[Tensor, " n"], size: int) -> Tensor:
    limit = int(size * _SHIFT + 0.5)
    return (numbers * (2 * limit + 1)).floor().long()[:, None] - limit


def _within(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)


_FUNCTIONS = {"color": color, "translation": translation, "cutout": cutout, "small_cutout": small_cutout}
