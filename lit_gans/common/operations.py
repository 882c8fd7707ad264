"""Counts the operations of a training step. On a GPU, the host needs about the same time to launch each operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from lit_gans.common._compat.torch import TorchDispatchMode


class OperationCounter(TorchDispatchMode):
    """Context manager that counts torch's operations in forward passes, backward passes and optimizer steps.

    Views and the profiler's marks are not counted. The number depends neither on the sizes of the tensors nor on their
    device. The number differs between versions of torch.

    Attributes:
        operations: maps the name of each operation to its number of calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and func.namespace not in ("prim", "profiler"):
            self.operations[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def count_operations(work: Callable[[], Any]) -> int:
    """Runs `work` once and returns its number of operations."""
    with OperationCounter() as counter:
        work()
    return counter.operations.total()
