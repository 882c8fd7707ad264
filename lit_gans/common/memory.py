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
_MOST_BYTES, _MOST_TIMES = 2**28, 64  # of modules, beyond and for each byte of their stored weights
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


def plausible(stored: int) -> int:
    """Returns the most bytes of a module's tensors where a file has `stored` bytes of its weights, and describes it."""
    return _MOST_BYTES + _MOST_TIMES * stored


class _Counting(TorchFunctionMode):
    """Adds up the bytes of new tensors, which take no memory before their values are written.

    Args:
        most: number of bytes that are allowed.
        refusal: sentence for more.
    """

    def __init__(self, most: float, refusal: str) -> None:
        super().__init__()
        self.num_bytes, self.most, self.refusal = 0, most, refusal

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _FACTORIES and made.device.type == "cpu":
            self.num_bytes += made.nbytes
            if self.num_bytes > self.most:
                raise RefusedInput(self.refusal)
        return made


@contextmanager
def refused_if_too_large(what: str, stored: int | None = None) -> Iterator[None]:
    """Converts tensors that do not fit in this machine's memory, alone or together, to `RefusedInput`.

    Args:
        what: what makes the tensors, as the beginning of a sentence.
        stored: bytes of their weights in the file that describes them, which bound them, see `plausible`.
    """
    most = machine_memory()
    too_large = f"{what} need more memory than the {most / _GIB:,.0f} GiB of this machine: choose smaller ones."
    refusal = too_large
    if stored is not None and plausible(stored) < most:
        most, refusal = plausible(stored), f"{what} need far more memory than its weights: it is damaged."
    try:
        with _Counting(most, refusal):
            yield
    except (MemoryError, RuntimeError) as error:
        if not (is_full(error) or "overflow" in str(error)):  # of the number of bytes
            raise
        raise RefusedInput(too_large) from error
