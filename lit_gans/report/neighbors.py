"""Searches for the real images nearest to generated images, to show whether a generator has memorized images."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lit_gans.data.images import reduced


@torch.no_grad()
def nearest_images(
    samples: Float[Tensor, "n c h w"], real: Iterator[UInt8[Tensor, "b c h w"]], num: int
) -> tuple[list[list[Tensor]], Float[Tensor, "n k"]]:
    """Finds the real images with the smallest root mean square difference to each sample.

    The images are compared at 32x32 pixels, or at their own size if they are smaller.

    Args:
        samples: generated images in [0, 1].
        real: batches of all real images, which have the same size as the samples.
        num: number of nearest real images per sample.

    Returns:
        The nearest real images of each sample, nearest first, and their distances. All real images are returned if
        there are fewer than `num` real images.
    """
    vectors = reduced(samples.cpu())
    smallest = torch.empty(len(vectors), 0)
    nearest: list[list[Tensor]] = [[] for _ in vectors]
    for batch in real:
        batch = batch.cpu()
        distances = torch.cdist(vectors, reduced(batch.float() / 255)) / vectors.shape[1] ** 0.5
        candidates = torch.cat([smallest, distances], 1)
        smallest, indices = candidates.topk(min(num, candidates.shape[1]), dim=1, largest=False)
        # an index below len(old) selects one of the nearest images so far, and a larger index an image of the batch
        nearest = [
            [old[index] if index < len(old) else batch[index - len(old)].clone() for index in row]
            for old, row in zip(nearest, indices.tolist(), strict=True)
        ]
    return nearest, smallest
