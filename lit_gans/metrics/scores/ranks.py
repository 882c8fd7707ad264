"""Metrics of several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors


class Score(Metric):
    """Metric whose states are those of its rank again after a `compute` that raises an error.

    torchmetrics leaves them gathered, so that every further `compute` fails.
    """

    @contextmanager
    def sync_context(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Gathers the states of all ranks inside the context; see `torchmetrics.Metric`."""
        failure = None
        with super().sync_context(*args, **kwargs):
            try:
                yield
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


def gather(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Gathers a tensor of all ranks with torchmetrics, also from main memory over nccl."""
    over_nccl = distributed.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if over_nccl else torch.device("cpu")
    return [other.to(tensor.device) for other in gather_all_tensors(tensor.to(device), group)]


def place() -> tuple[int, int]:
    """Returns the rank and the number of ranks."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
