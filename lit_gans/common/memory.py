"""Refusals of what cannot fit in the memory of this machine, before that memory is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lit_gans.common.errors import RefusedInput

_GIB = 2**30
_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn)


def machine_memory() -> float:
    """Returns the bytes of memory of this machine; infinity where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def is_full(error: Exception) -> bool:
    """Whether an error says that this machine or its device has too little memory."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def refuse_memory(needed: int, what: str, advice: str) -> None:
    """Raises `RefusedInput` for `needed` bytes that this machine does not have.

    Args:
        needed: number of bytes.
        what: what needs them, as the beginning of a sentence.
        advice: what to choose instead.
    """
    if needed > machine_memory():
        raise RefusedInput(
            f"{what} need {needed / _GIB:,.0f} GiB of memory, more than the {machine_memory() / _GIB:,.0f} GiB of this"
            f" machine: {advice}."
        )


class _Counting(TorchFunctionMode):
    """Adds up the bytes of new tensors, which take no memory before their values are written."""

    num_bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _FACTORIES and made.device.type == "cpu":
            self.num_bytes += made.nbytes
            if self.num_bytes > machine_memory():
                raise MemoryError
        return made


@contextmanager
def refused_if_too_large(what: str) -> Iterator[None]:
    """Converts tensors that do not fit in this machine's memory, alone or together, to `RefusedInput`.

    Args:
        what: what makes the tensors, as the beginning of a sentence.
    """
    try:
        with _Counting():
            yield
    except (MemoryError, RuntimeError) as error:
        if not (is_full(error) or "overflow" in str(error)):  # of the number of bytes
            raise
        raise RefusedInput(
            f"{what} need more memory than the {machine_memory() / _GIB:,.0f} GiB of this machine: choose smaller ones."
        ) from error
