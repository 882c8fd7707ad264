"""Random crops of a batch for training, and padding to whole multiples for networks that halve their maps."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.size import Size, sides


def random_crops(
    images: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 2"], image_size: Size
) -> Float[Tensor, "n c h2 w2"]:
    """Returns a part of each image, at the same place for the same numbers.

    Args:
        images: images that are at least as large as the crops.
        numbers: random numbers in [0, 1), of the row and the column.
        image_size: height and width of the crops.
    """
    places = []
    for axis, (whole, side) in enumerate(zip(images.shape[-2:], sides(image_size), strict=True)):
        first = (numbers[:, axis] * (whole - side + 1)).floor().long()
        places.append(first[:, None] + torch.arange(side, device=images.device))
    item = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[item, places[0][:, :, None], places[1][:, None, :]].permute(0, 3, 1, 2)


def multiple_of(side: int, multiple: int) -> int:
    """Returns the smallest multiple that is not less than a length."""
    return -(-side // multiple) * multiple


def padded(images: Float[Tensor, "n c h w"], multiple: int) -> Float[Tensor, "n c h2 w2"]:
    """Pads images at the bottom and on the right to multiples of a number of pixels, by reflection.

    Unlike `torch.nn.functional.pad`, which reflects once, it pads small images by more than their size.
    """
    for axis in (-2, -1):
        side = images.shape[axis]
        wanted = multiple_of(side, multiple)
        if wanted != side:
            there = torch.arange(wanted, device=images.device) % max(1, 2 * (side - 1))
            images = images.index_select(axis, torch.where(there < side, there, 2 * (side - 1) - there))
    return images
