"""Helpers that control the precision of computations, such as computations that must not run in half precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

FLOAT32 = "at least float32, without TF32"  # precision of samples and metrics, for protocols


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Context manager that allows or forbids TF32 in matrix products and convolutions in float32, which only CUDA has.

    By default, torch allows TF32 in convolutions only. If the settings of these operations can no longer be read
    together, the script has chosen one of them with torch's newer `fp32_precision`: its choice is kept.
    """
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    try:
        previous = products.allow_tf32, convolutions.allow_tf32
    except RuntimeError:
        yield
        return
    products.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = previous


def full_precision(tensor: Tensor) -> Tensor:
    """Converts a half-precision tensor to float32. Tensors of higher precision stay unchanged."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """Context manager that disables autocast on the device of `tensor`."""
    # autocast does not support the meta device, and entering autocast takes the host longer than a small layer
    if tensor.is_meta or not torch.is_autocast_enabled(tensor.device.type):
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def autocast_precision(tensor: Tensor) -> Tensor:
    """Converts a tensor to the data type of autocast on its device. Without autocast, the tensor stays unchanged."""
    if tensor.is_meta or not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))
