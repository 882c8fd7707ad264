"""The rank of this process, and computations that run on rank 0 only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import distributed

Value = TypeVar("Value")


def rank_and_world_size() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes, or (0, 1) without torch.distributed."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def computed_once(compute: Callable[[], Value]) -> Value:
    """Computes a value on rank 0, and returns it on all ranks. All ranks must call this function.

    Args:
        compute: function that returns a picklable value. It is called on rank 0 only.

    Raises:
        Exception: `compute` raised this exception on rank 0. It is raised again on all ranks.
    """
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        return compute()
    outcome: list[tuple[Value | None, Exception | None]] = [(None, None)]
    if rank == 0:
        try:
            outcome = [(compute(), None)]
        except Exception as error:  # raised on all ranks below; otherwise, the other ranks would wait forever
            outcome = [(None, error)]
    distributed.broadcast_object_list(outcome)
    value, raised = outcome[0]
    if raised is not None:
        raise raised
    return value  # type: ignore[return-value]  # None only if `compute` returned None
