"""Helpers for computations that must not use half precision, even under autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> Tensor:
    """Converts a floating-point tensor to at least float32."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """Returns a context without autocast on the device of `tensor`."""
    # autocast does not support the meta device; to enter it costs the host more than a small layer
    if tensor.is_meta or not torch.is_autocast_enabled(tensor.device.type):
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def autocast_precision(tensor: Tensor) -> Tensor:
    """Converts a tensor to the precision of autocast on its device; unchanged without autocast."""
    if tensor.is_meta or not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))
