"""Random crops and mirror images of a batch for training."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from lit_gans.common.size import Size, sides

_ENLARGED = 286 / 256  # then a random crop of the original size (Isola et al. 2017, section 6.2)


def jittered(
    images: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 3"], image_size: Size, jitter: bool
) -> Float[Tensor, "n c h2 w2"]:
    """Returns a part of each image, half of them mirrored; in the same way for the same numbers.

    Images of the size of the crops are enlarged by 286/256 before, larger ones are not.

    Args:
        images: images that are at least as large as the crops.
        numbers: random numbers in [0, 1), of the row, the column and the mirroring.
        image_size: height and width of the crops.
        jitter: whether to enlarge and to mirror; without, only larger images are cropped.
    """
    mirrored = numbers[:, 2] < 0.5
    if tuple(images.shape[-2:]) != sides(image_size):  # whole pictures
        crops = random_crops(images, numbers[:, :2], image_size)
        return torch.where(mirrored[:, None, None, None], crops.flip(-1), crops) if jitter else crops
    if not jitter:
        return images
    share = 1 / _ENLARGED
    shift = (2 * numbers[:, :2] - 1) * (1 - share)
    mirror = 1 - 2 * mirrored.to(shift)
    zero = torch.zeros_like(mirror)
    rows = [mirror * share, zero, shift[:, 0]], [zero, torch.full_like(zero, share), shift[:, 1]]
    matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)
    grid = functional.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


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
