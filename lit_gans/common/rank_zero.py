"""Computations that run on rank 0 only, and whose result is broadcast to all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import distributed

Value = TypeVar("Value")


def computed_once(compute: Callable[[], Value]) -> Value:
    """Computes a value on rank 0, and returns it on all ranks. All ranks must call this function.

    Args:
        compute: function that returns a picklable value. It is called on rank 0 only.

    Raises:
        Exception: `compute` raised this exception on rank 0. It is raised again on all ranks.
    """
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return compute()
    outcome: list[tuple[Value | None, Exception | None]] = [(None, None)]
    if distributed.get_rank() == 0:
        try:
            outcome = [(compute(), None)]
        except Exception as error:  # raised on all ranks below; otherwise, the other ranks would wait forever
            outcome = [(None, error)]
    distributed.broadcast_object_list(outcome)
    value, raised = outcome[0]
    if raised is not None:
        raise raised
    return value  # type: ignore[return-value]  # None only if `compute` returned None
