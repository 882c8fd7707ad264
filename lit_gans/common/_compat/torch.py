"""Private APIs of torch. Checked with torch 2.15.0."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, _tensor_str, nn
from torch.distributed import ProcessGroup, Store, distributed_c10d
from torch.nn.modules import batchnorm
from torch.nn.modules import module as module_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _python_dispatch, _pytree

try:  # public since https://github.com/pytorch/pytorch/pull/193607
    from torch.foreach import copy_ as _copy
    from torch.foreach import lerp_ as _lerp
    from torch.foreach import norm as _norm
except ImportError:
    _copy, _lerp, _norm = torch._foreach_copy_, torch._foreach_lerp_, torch._foreach_norm

# The base class of the norms with running statistics. No issue found: torch documents the norms one by one.
NormBase = batchnorm._NormBase

# The class to see every operator with. No issue found.
TorchDispatchMode = _python_dispatch.TorchDispatchMode

# Traverses the outputs of a module of any structure. A public `torch.utils.pytree` is proposed in
# https://github.com/pytorch/pytorch/pull/175082.
tree_leaves = _pytree.tree_leaves

# DistributedDataParallel's argument that stops it from broadcasting buffers before each forward. Not private, but
# renamed by https://github.com/pytorch/pytorch/pull/178054: newer versions warn about the old name.
_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)
WITHOUT_BUFFER_SYNC = {_BUFFERS: False}


def process_groups() -> list[ProcessGroup]:
    """Returns all process groups of this process, from `distributed_c10d._world`.

    There is no public API, and no issue asks for a list; even that of the default group is missing
    (https://github.com/pytorch/pytorch/issues/84468).
    """
    return list(distributed_c10d._world.pg_map)


def default_store() -> Store:
    """Returns the store that the ranks of this training share, from `distributed_c10d._get_default_store`.

    No public API, since `init_process_group` returns nothing. No issue found.
    """
    return distributed_c10d._get_default_store()


def set_timeout(group: ProcessGroup, timeout: timedelta) -> None:
    """Sets the timeout of a group's collectives.

    Older versions have only `distributed_c10d._set_pg_timeout`; `torch.distributed.set_timeout` came with
    https://github.com/pytorch/pytorch/pull/187387.
    """
    public = vars(distributed_c10d).get("set_timeout")
    (public or distributed_c10d._set_pg_timeout)(timeout, group)


def reduces_all(replica: DistributedDataParallel) -> bool:
    """Returns whether the last backward reached all or none of the parameters of a replica, so that none of them waits
    to be reduced, from `DistributedDataParallel._check_reducer_finalized`.

    torch itself says so only in the backward that follows. No issue found.
    """
    try:
        replica._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def copy_all(targets: Sequence[Tensor], sources: Iterable[Tensor]) -> None:
    """Copies tensors in one kernel on CUDA: `torch.foreach.copy_`, in older versions `torch._foreach_copy_`.

    Public since https://github.com/pytorch/pytorch/pull/193607.
    """
    if targets:
        _copy(list(targets), list(sources))


def lerp_all(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Interpolates tensors in one kernel on CUDA: `torch.foreach.lerp_`, in older versions `torch._foreach_lerp_`.

    Public since https://github.com/pytorch/pytorch/pull/193607.
    """
    _lerp(list(targets), list(sources), weight)


def norm_all(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the Euclidean norm of each tensor, in few kernels on CUDA: `torch.foreach.norm`, in older versions
    `torch._foreach_norm`.

    Public since https://github.com/pytorch/pytorch/pull/193607.
    """
    return _norm(list(tensors)) if tensors else ()


def scale_of(scaler: torch.amp.GradScaler) -> Tensor | None:
    """Returns the scale of a gradient scaler on its device, from `GradScaler._scale`; None before its first use.

    The public `get_scale` waits for the device. No issue found.
    """
    return scaler._scale


def version_of(tensor: Tensor) -> int:
    """Returns how many times a tensor, or one that shares its memory, was changed in place, from `Tensor._version`.

    torch documents the counter in its notes on autograd mechanics, but has no public name for it. No issue found.
    """
    return tensor._version


def is_compiled(module: nn.Module) -> bool:
    """Returns whether `module.compile()` was called, from `nn.Module._compiled_call_impl`.

    A module that is compiled in place does not say so: `torch._dynamo.OptimizedModule` is the class of a wrapper, which
    `torch.compile(module)` returns. No issue found.
    """
    return module._compiled_call_impl is not None


# What FSDP2 does around the forward of a module that it shards, from `FSDPModule._get_fsdp_state()`. The public
# `register_fsdp_forward_method` does it around a method that is known before.


def begin_forward(sharded: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Gathers a sharded module for a forward, and returns its arguments. No issue found."""
    return sharded._get_fsdp_state()._pre_forward(sharded, args, kwargs)


def end_forward(sharded: Any, args: Any, outputs: Any) -> Any:
    """Frees a sharded module after a forward, and returns its outputs, whose backward gathers it. No issue found."""
    return sharded._get_fsdp_state()._post_forward(sharded, args, outputs)


def is_computing(sharded: Any) -> bool:
    """Returns whether a forward of a sharded module is running. No issue found."""
    return sharded._get_fsdp_state()._training_state.name == "FORWARD"


def begin_backward(sharded: Any) -> Callable[[Tensor], Tensor]:
    """Returns the hook of an output's gradient that gathers a sharded module, and reduces its gradients at the end.

    No issue found.
    """
    return sharded._get_fsdp_state()._pre_backward


def global_module_hooks() -> dict[str, Any]:
    """Returns the hooks of all modules, such as those of `torch.nn.modules.module.register_module_forward_hook`, from
    its variables `_global_...`.

    The public functions only add a hook. No issue found.
    """
    found = {name: value for name, value in vars(module_file).items() if name.startswith("_global_")}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in found.items()}


def set_global_module_hooks(hooks: dict[str, Any]) -> None:
    """Replaces the hooks of all modules in place; see `global_module_hooks`."""
    for name, value in hooks.items():
        if isinstance(value, dict):
            current = getattr(module_file, name)
            current.clear()
            current.update(value)
        else:
            setattr(module_file, name, value)


def print_options() -> dict[str, Any]:
    """Returns the arguments of `torch.set_printoptions` that are set, from `torch._tensor_str.PRINT_OPTS`.

    torch has no public name for them. No issue found.
    """
    return asdict(_tensor_str.PRINT_OPTS)
