"""The real images that are closest to generated ones, which show whether a generator has memorized them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

_SIZE = 32  # pixels to which images are reduced: below it, details such as noise do not count


@torch.no_grad()
def nearest_images(
    samples: Float[Tensor, "n c h w"], real: Iterator[UInt8[Tensor, "b c h w"]], num: int
) -> tuple[list[list[Tensor]], Float[Tensor, "n k"]]:
    """Finds the real images with the smallest root mean square difference to each sample, at 32x32 pixels or less.

    Args:
        samples: generated images in [0, 1].
        real: batches of all real images, of the same size.
        num: number of real images for each sample.

    Returns:
        The real images of each sample, the nearest first, and their distances; fewer than `num` if there are fewer.
    """
    ours = reduced(samples.cpu())
    best = torch.empty(len(ours), 0)
    images: list[list[Tensor]] = [[] for _ in ours]
    for batch in real:
        batch = batch.cpu()
        distances = torch.cdist(ours, reduced(batch.float() / 255)) / ours.shape[1] ** 0.5
        together = torch.cat([best, distances], 1)
        best, places = together.topk(min(num, together.shape[1]), dim=1, largest=False)
        images = [
            [own[place] if place < len(own) else batch[place - len(own)].clone() for place in row]
            for own, row in zip(images, places.tolist(), strict=True)
        ]
    return images, best


def reduced(images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n pixels"]:
    """Returns images at 32x32 pixels or less as vectors."""
    height, width = images.shape[-2:]
    share = min(1.0, _SIZE / max(height, width))
    size = (max(1, round(height * share)), max(1, round(width * share)))
    return functional.interpolate(images, size, mode="area").flatten(1)
