"""What must not be computed in half precision, whatever autocast says."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> Tensor:
    """Returns a floating-point tensor in float32 at least."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """Returns a context without autocast on the device of `tensor`."""
    # autocast does not know the device of tensors without numbers
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)
