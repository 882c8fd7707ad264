"""Batches of named tensors: conversion of a loader's output, checks, and splitting into microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lit_gans.common.errors import RefusedInput

Batch = dict[str, Tensor]
"""Named tensors with one row for each image. A GAN can add other tensors.

- `image`: real images (n, c, h, w) in [-1, 1]. A batch that is only used by `generate` does not need them.
- `label`: class indices (n,), int64.
- `input`: images to translate (n, a, h, w) in [-1, 1].
- `latents`: standard normal latents (n, z).
- `fake`: generated images (n, c, h, w). They keep their graph if both networks' steps share one forward pass.
- other noise of one step (n, ...), uniform in [0, 1).
"""

_ROUNDING = 0.01  # tolerance for values outside [-1, 1], which rounding in bf16 or resizing can cause


def prepare_batch(data: Any, channels_last: bool) -> Batch:
    """Converts the output of a loader to a `Batch`, and maps images (all 4D tensors) from uint8 to [-1, 1].

    Args:
        data: a dict with "image", a pair (image, label), or only images.
        channels_last: whether images use the channels-last memory layout.
    """
    batch = {name: value for name, value in named(data).items() if isinstance(value, Tensor)}
    return {name: _prepared(tensor, channels_last) if tensor.dim() == 4 else tensor for name, tensor in batch.items()}


def named(data: Any) -> dict[str, Any]:
    """Returns the output of a loader as a dict with the keys of a `Batch`."""
    if isinstance(data, dict):
        return dict(data)
    return dict(zip(("image", "label"), data, strict=False)) if isinstance(data, Sequence) else {"image": data}


def _prepared(images: Tensor, channels_last: bool) -> Tensor:
    if images.dtype == torch.uint8:
        images = images.to(torch.get_default_dtype()).div_(127.5).sub_(1)
    elif images.dtype in (torch.float64, torch.float16, torch.bfloat16):  # dtypes of NumPy arrays and of stored images
        images = images.to(torch.get_default_dtype())
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images


_OTHER_NAMES = ("pixel_values", "images", "img", "imgs", "jpg", "jpeg", "png", "webp", "pixels", "x", "data")


def refuse_data(data: Any, channels: int) -> None:
    """Raises `RefusedInput` if the output of a loader has no images, or if images are not a tensor of uint8 or floats.

    Args:
        data: first output of a loader, see `prepare_batch`.
        channels: number of channels of the images.
    """
    batch = named(data)
    if "image" not in batch:
        names = [*map(str, batch)]
        other = next((name for name in _OTHER_NAMES if name in batch), None)
        labels = ", 'label': batch['labels']" if "labels" in batch else ""
        how = f", for example {{'image': batch['{other}']{labels}}}" if other else ""
        raise RefusedInput(
            f"the loader yields a dict with {', '.join(names) or 'no keys'}, but without image: name the images 'image'"
            f" and their classes 'label'{how}."
        )
    images = batch["image"]
    if not isinstance(images, Tensor):
        kind = type(images[0] if isinstance(images, list | tuple) and images else images).__name__
        raise RefusedInput(
            f"the loader yields images of type {kind}: expected a tensor (n, {channels}, height, width) of uint8, or of"
            " floats in [-1, 1]; torchvision.transforms.functional.pil_to_tensor converts images of Pillow, and"
            " torch.from_numpy(images).permute(0, 3, 1, 2) converts arrays (n, height, width, channels)."
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise RefusedInput(
            f"the loader yields images of {images.dtype}: expected uint8, or floats in [-1, 1]; for values from 0 to"
            " 255, use images.to(torch.uint8)."
        )


def refuse_layout(
    images: Tensor,
    expected: tuple[int, int, int],
    subject: str = "the loader yields images",
    any_size: bool = False,
) -> None:
    """Raises `RefusedInput` if images do not have the shape that the networks expect.

    The message suggests a fix: a permutation of the axes, a missing axis, or different settings.

    Args:
        images: images of a batch.
        expected: channels, height and width.
        subject: beginning of the message, which names the images.
        any_size: whether to accept any height and width, and to check only the channels.
    """
    shape = tuple(images.shape)
    if len(shape) == 4 and (shape[1] == expected[0] if any_size else shape[1:] == expected):
        return
    channels, *size = expected
    usual = (channels, 1, 3, 4)
    if len(shape) == 3 and (shape == expected or (any_size and shape[0] == channels)):
        how = "the batch axis is missing: set batch_size of the DataLoader, or use images[None]"
    elif len(shape) == 3 and shape[2] == channels and list(shape[:2]) == size:
        how = "the batch axis is missing, and the channels are last: use images.permute(2, 0, 1)[None]"
    elif len(shape) == 3 and channels == 1:
        how = "the channel axis is missing: use images[:, None]"
    elif len(shape) != 4:
        how = "expected a batch (n, channels, height, width)"
    elif (shape[1] not in usual and shape[3] in usual) or list(shape[1:]) == [*size, channels]:
        how = "the channels are last: use images.permute(0, 3, 1, 2)"
    elif (shape[1], channels) == (1, 3):
        how = "set channels=1 of the model, or use images.expand(-1, 3, -1, -1)"
    elif (shape[1], channels) == (3, 1):
        how = "set channels=3 of the model, or convert the images to one channel (torchvision.transforms.Grayscale)"
    else:
        how = "resize the images, or set channels and image_size of the model"
    shown = shape[1:] if len(shape) == 4 else shape
    raise RefusedInput(f"{subject} of shape {shown}, but the model expects {expected}: {how}.")


def refuse_labels(labels: Tensor, num: int, num_classes: int) -> None:
    """Raises `RefusedInput` if labels are not the classes of `num` images. Synchronizes with the device."""
    refuse_label_layout(labels)
    if len(labels) != num:
        raise RefusedInput(f"there are {len(labels)} labels for {num} images: expected one class index for each image.")
    low, high = (int(value) for value in labels.aminmax())
    if low < 0 or high >= num_classes:
        raise RefusedInput(
            f"the labels are numbers from {low} to {high}, but the model has num_classes={num_classes}, which are the"
            f" classes 0 to {num_classes - 1}: renumber the classes, or set num_classes."
        )


def refuse_label_layout(labels: Tensor) -> None:
    """Raises `RefusedInput` if labels are not a vector of class indices. Does not synchronize with the device."""
    is_integer = labels.dtype in (torch.int32, torch.int64)
    if labels.dim() == 1 and is_integer:
        return
    how = "yield one index for each image"
    if labels.dim() in (1, 2):
        column = "" if labels.dim() == 1 else "[:, 0]" if labels.shape[1] == 1 else ".argmax(1)"
        how = f"use labels{column}{'' if is_integer or column == '.argmax(1)' else '.long()'}"
    raise RefusedInput(
        f"the labels are a tensor of {labels.dtype} and of shape {tuple(labels.shape)}, but the model expects class"
        f" indices of shape (n,) and of torch.int64: {how}."
    )


def doubt_about_range(data: Any) -> str | None:
    """Returns a warning message if images do not seem to be in [-1, 1], or None. Synchronizes with the device.

    Args:
        data: first output of a loader, see `prepare_batch`. Points can have any range and give no warning.
    """
    images = named(data).get("image")
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.dim() != 4 or images.shape[-1] == 1:
        return None
    low, high = (float(value) for value in images.aminmax())
    if low < 0 and low >= -1 - _ROUNDING and high <= 1 + _ROUNDING:
        return None
    return (
        f"the loader yields images from {low:.3g} to {high:.3g}, but networks and metrics expect [-1, 1]: map images in"
        " [0, 1] by 2 * images - 1, or yield uint8, which is mapped automatically."
    )


def repeat_batch(batch: Batch, times: int) -> Batch:
    """Repeats each row `times` times before the next row, so that each rank keeps its slice of the global batch."""
    if times == 1:
        return batch
    return {name: tensor.repeat_interleave(times, 0) for name, tensor in batch.items()}


def split_batch(batch: Batch, num: int) -> list[Batch]:
    """Splits every tensor of a batch into `num` equal pieces.

    Raises:
        RefusedInput: if the number of images is not a multiple of `num`.
    """
    if num == 1:
        return [batch]
    size = len(batch["image"])
    if size % num:
        raise RefusedInput(
            f"a batch of {size} images cannot be split into {num} equal pieces: the loader must yield batch_size x"
            " n_critic x accumulate_gradients images, in the last batch of an epoch, too: use"
            " DataLoader(..., drop_last=True)."
        )
    pieces = {name: tensor.chunk(num) for name, tensor in batch.items()}
    return [{name: piece[index] for name, piece in pieces.items()} for index in range(num)]


def share_of_loss(loss: Tensor, num: int) -> Tensor:
    """Divides a microbatch's loss by `num`. A single microbatch keeps its loss, which saves a kernel launch."""
    return loss if num == 1 else loss / num
