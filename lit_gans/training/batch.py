"""What a loader yields, named, in the range that networks expect, and cut into sub-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput

# "image" (n, c, s, s) in [-1, 1], perhaps "label" (n,) and "input" (n, a, s, s) in [-1, 1], and the update's noise
Batch = dict[str, Tensor]


def prepare_batch(data: Any, channels_last: bool) -> Batch:
    """Names what a loader yields and brings uint8 images (every tensor of 4 dimensions) to [-1, 1].

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
    return {name: _prepared(tensor, channels_last) if tensor.dim() == 4 else tensor for name, tensor in batch.items()}


def _prepared(images: Tensor, channels_last: bool) -> Tensor:
    if images.dtype == torch.uint8:
        images = images.to(torch.get_default_dtype()).div_(127.5).sub_(1)
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images


def repeat_batch(batch: Batch, times: int) -> Batch:
    """Returns a batch with each row repeated, so that a rank's rows stay those of its part of the global batch."""
    return batch if times == 1 else {name: tensor.repeat_interleave(times, 0) for name, tensor in batch.items()}


def split_batch(batch: Batch, num: int) -> list[Batch]:
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
