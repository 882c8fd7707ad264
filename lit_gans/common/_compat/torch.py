"""torch's private parts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, distributed_c10d
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

try:
    from torch.foreach import lerp_ as _lerp
except ImportError:  # torch 2.11, which pyproject.toml allows
    _lerp = torch._foreach_lerp_

__all__ = [  # in addition to the functions below
    "NormBase",  # the base class of norms with running statistics has no public name
    "tree_leaves",  # torch has no public function to traverse the outputs of a module
]

# torch 2.15 deprecated `broadcast_buffers` and split it in two; older versions have only that name
_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)
WITHOUT_BUFFER_SYNC = {_BUFFERS: False}


def process_groups() -> list[ProcessGroup]:
    """Returns all process groups of this process, which torch does not expose publicly."""
    return list(distributed_c10d._world.pg_map)


def set_timeout(group: ProcessGroup, timeout: timedelta) -> None:
    """Sets the timeout of a group's collectives, a public function only since torch 2.15."""
    public = vars(distributed_c10d).get("set_timeout")
    (public or distributed_c10d._set_pg_timeout)(timeout, group)


def copy_all(targets: list[Tensor], sources: Iterable[Tensor]) -> None:
    """Copies tensors in one kernel on CUDA, for which torch has only a private foreach function."""
    torch._foreach_copy_(targets, list(sources))


def lerp_all(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Interpolates many tensors in one kernel on CUDA; older versions of torch have no public name for it."""
    _lerp(list(targets), list(sources), weight)
