"""Padding to whole multiples, for networks that halve their maps, and cutting what they make."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


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


def cut(images: Float[Tensor, "n c h2 w2"], like: Float[Tensor, "n a h w"]) -> Float[Tensor, "n c h w"]:
    """Cuts what was made of padded images to the height and width that they had before."""
    if images.shape[-2:] == like.shape[-2:]:
        return images
    return images[..., : like.shape[-2], : like.shape[-1]]
