"""Batches: named tensors, in the range that the networks expect, and their split into microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput

Batch = dict[str, Tensor]
"""Named tensors with one row for each image; a GAN may add its own.

- `image`: real images (n, c, h, w) in [-1, 1]; not in a batch for `generate` alone.
- `label`: class indices (n,), int64.
- `input`: images to translate (n, a, h, w) in [-1, 1].
- `latents`: (n, z), standard normal.
- `fake`: generated images (n, c, h, w) with their graph, where one forward serves both networks' steps.
- further noise of one step (n, ...), uniform in [0, 1).
"""

_ROUNDING = 0.01  # of bf16, and of resized images


def prepare_batch(data: Any, channels_last: bool) -> Batch:
    """Converts the output of a loader to a `Batch` and maps uint8 images (every 4D tensor) to [-1, 1].

    Args:
        data: a dict with "image", a pair (image, label), or images alone.
        channels_last: whether images use the channels-last memory layout.
    """
    batch = _by_name(data)
    return {name: _prepared(tensor, channels_last) if tensor.dim() == 4 else tensor for name, tensor in batch.items()}


def _by_name(data: Any) -> dict[str, Any]:
    if isinstance(data, dict):
        return dict(data)
    return dict(zip(("image", "label"), data, strict=False)) if isinstance(data, Sequence) else {"image": data}


def _prepared(images: Tensor, channels_last: bool) -> Tensor:
    if images.dtype == torch.uint8:
        images = images.to(torch.get_default_dtype()).div_(127.5).sub_(1)
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images


def doubt_about_range(data: Any) -> str | None:
    """Returns a sentence if images do not seem to be in [-1, 1]; waits for the device.

    Args:
        data: the first output of a loader, see `prepare_batch`; points may have any range.
    """
    images = _by_name(data).get("image")
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.dim() != 4 or images.shape[-1] == 1:
        return None
    low, high = (float(value) for value in images.aminmax())
    if low < 0 and low >= -1 - _ROUNDING and high <= 1 + _ROUNDING:
        return None
    return (
        f"the loader yields images from {low:.3g} to {high:.3g}, and networks and metrics expect [-1, 1]: map them, by"
        " 2 * images - 1 if they are in [0, 1], or yield uint8, which is mapped already."
    )


def repeat_batch(batch: Batch, times: int) -> Batch:
    """Returns a batch with each row repeated, so that each rank keeps its slice of the global batch."""
    if times == 1:
        return batch
    return {name: tensor.repeat_interleave(times, 0) for name, tensor in batch.items()}


def split_batch(batch: Batch, num: int) -> list[Batch]:
    """Splits every tensor of a batch into `num` equal pieces.

    Raises:
        RefusedInput: the number of images is not a multiple of `num`.
    """
    if num == 1:
        return [batch]
    size = len(batch["image"])
    if size % num:
        raise RefusedInput(
            f"a batch of {size} images cannot be split into {num} equal pieces: the loader must yield batch_size x"
            " n_critic x accumulate_gradients images."
        )
    pieces = {name: tensor.chunk(num) for name, tensor in batch.items()}
    return [{name: piece[index] for name, piece in pieces.items()} for index in range(num)]


def share_of_loss(loss: Tensor, num: int) -> Tensor:
    """Returns a microbatch's share of the loss; of a single one, the loss itself, without another kernel."""
    return loss if num == 1 else loss / num
