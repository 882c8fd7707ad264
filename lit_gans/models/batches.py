"""What a loader yields, named, in the range that networks expect, and cut into sub-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lit_gans.errors import RefusedInput

Batch = dict[str, Tensor]  # "image" (n, c, s, s) in [-1, 1], perhaps "label" (n,), and the update's noise


def prepare(data: Any, channels_last: bool) -> Batch:
    """Names what a loader yields and brings uint8 images to [-1, 1].

    Args:
        data: a dict with "image", a pair (image, label), or images alone.
        channels_last: memory layout of the images.
    """
    if isinstance(data, dict):
        batch = dict(data)
    elif isinstance(data, Sequence):
        batch = dict(zip(("image", "label"), data, strict=False))
    else:
        batch = {"image": data}
    image = batch["image"]
    if image.dtype == torch.uint8:
        image = image.to(torch.float32).div_(127.5).sub_(1)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    return batch | {"image": image}


def cut(batch: Batch, num: int) -> list[Batch]:
    """Cuts every tensor of a batch into `num` equal parts.

    Raises:
        RefusedInput: the number of images is no multiple of `num`.
    """
    size = len(batch["image"])
    if size % num:
        raise RefusedInput(
            f"a batch of {size} images cannot be cut into {num} equal parts: the loader must yield batch_size x"
            " n_critic x accumulate_gradients images."
        )
    if num == 1:
        return [batch]
    pieces = {name: tensor.chunk(num) for name, tensor in batch.items()}
    return [{name: piece[index] for name, piece in pieces.items()} for index in range(num)]
