"""Refusals of what cannot fit in the memory of this machine, before that memory is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from lit_gans.common.errors import RefusedInput

_GIB = 2**30
Made = TypeVar("Made")


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


@contextmanager
def refused_if_too_large(what: str) -> Iterator[None]:
    """Converts torch's error of a tensor that this machine cannot hold to `RefusedInput`.

    Args:
        what: what makes the tensor, as the beginning of a sentence.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (is_full(error) or "overflow" in str(error)):  # of the number of bytes
            raise
        memory = machine_memory() / _GIB
        raise RefusedInput(
            f"{what} need more memory than the {memory:,.0f} GiB of this machine: choose smaller ones."
        ) from error


def made_if_verified(make: Callable[[], Made], verify: Callable[[Made], None]) -> Made:
    """Makes networks that a file describes, which may be of any size, after a check that takes no memory.

    Args:
        make: constructor, which is called twice: first on the meta device, where tensors have sizes and no content.
        verify: raises an error for networks whose sizes are not those of the file's weights.
    """
    try:
        with torch.device("meta"):
            sketch = make()
    except (NotImplementedError, RuntimeError):  # a constructor that reads numbers of its tensors
        return make()
    verify(sketch)
    return make()
