"""Padding to whole multiples, for networks that halve their maps."""

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
