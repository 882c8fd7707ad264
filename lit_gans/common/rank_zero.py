"""Work that rank 0 does for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import distributed

Value = TypeVar("Value")


def computed_once(compute: Callable[[], Value]) -> Value:
    """Returns on every rank what rank 0 computes; every rank must call it.

    Args:
        compute: function that returns a picklable value; called on rank 0 only.

    Raises:
        Exception: the exception that `compute` raises on rank 0, on every rank.
    """
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return compute()
    outcome: list[tuple[Value | None, Exception | None]] = [(None, None)]
    if distributed.get_rank() == 0:
        try:
            outcome = [(compute(), None)]
        except Exception as error:  # raised on every rank, since the others would wait forever
            outcome = [(None, error)]
    distributed.broadcast_object_list(outcome)
    value, raised = outcome[0]
    if raised is not None:
        raise raised
    return value  # type: ignore[return-value]  # None only if rank 0 computed it
