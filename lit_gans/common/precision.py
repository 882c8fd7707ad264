"""Helpers that control the precision of computations, such as computations that must not run in half precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


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
