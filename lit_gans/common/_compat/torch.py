"""Private APIs of torch. Checked with torch 2.15.0."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
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

# Calls a function when the running backward pass ends, unless the pass raises an error. Public since torch 2.15.
at_end_of_backward: Callable[[Callable[[], None]], None] = (
    torch.autograd.graph.queue_callback
    if hasattr(torch.autograd.graph, "queue_callback")
    else torch.autograd.Variable._execution_engine.queue_callback  # type: ignore[attr-defined]
)

# Base class of all norm layers with running statistics. torch documents only the individual layers. No issue found.
NormBase = batchnorm._NormBase

# Base class for modes that intercept all operators. No issue found.
TorchDispatchMode = _python_dispatch.TorchDispatchMode

# Operator that `float(tensor)` calls. Dispatch modes also receive it for Python numbers, which torch does not wrap in a
# tensor. No issue found.
NUMBER_OF_TENSOR = torch.ops.aten._local_scalar_dense.default

# Highest clock rate of a GPU in cycles per second, rounded up.
_CYCLES = 3e9


def delay_device(seconds: float) -> None:
    """Queues a kernel on the current CUDA stream that computes nothing for at least the given time.

    The work that is queued afterwards waits, so that the host can launch it in advance. Calls `torch.cuda._sleep`.
    There is no public API. No issue found.
    """
    torch.cuda._sleep(int(seconds * _CYCLES))


# Functions that return the leaves of nested structures, or apply a function to the leaves. A public
# `torch.utils.pytree` is proposed in https://github.com/pytorch/pytorch/pull/175082.
tree_leaves = _pytree.tree_leaves
tree_map = _pytree.tree_map

# Argument of DistributedDataParallel that disables the broadcast of buffers before each forward pass. It is public, but
# https://github.com/pytorch/pytorch/pull/178054 renamed it, and newer versions warn about the old name.
_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)
WITHOUT_BUFFER_SYNC = {_BUFFERS: False}


def process_groups() -> list[ProcessGroup]:
    """Returns all process groups of this process, from `distributed_c10d._world`.

    There is no public API, not even for the default group (https://github.com/pytorch/pytorch/issues/84468). No issue
    that requests a list of all groups was found.
    """
    return list(distributed_c10d._world.pg_map)


def default_store() -> Store:
    """Returns the key-value store that all ranks share, from `distributed_c10d._get_default_store`.

    There is no public API, because `init_process_group` returns nothing. No issue found.
    """
    return distributed_c10d._get_default_store()


# Names of the graph nodes that can lie between a loss and its terms.
_OF_LOSSES = {"Add", "Sub", "Neg", "Mul", "Div", "Mean", "Sum", "ToCopy", "Squeeze", "View", "Reshape", "Clone"}
_MOST_NODES = 1000


def loss_factors(loss: Tensor) -> Iterator[tuple[float, bool]]:
    """Yields the numbers that multiply or divide a loss or one of its terms, and whether each number divides.

    Traverses the graph of the loss, and stops at nodes that compute more than sums and products. Reads
    `grad_fn._saved_other`: torch documents attributes with this prefix in its notes on autograd mechanics. No issue
    found.
    """
    nodes: list[Any] = [loss.grad_fn]
    seen: set[Any] = set()
    while nodes and len(seen) < _MOST_NODES:
        node = nodes.pop()
        kind = "" if node is None else node.name().partition("Backward")[0]
        if node is None or node in seen or kind not in _OF_LOSSES:
            continue
        seen.add(node)
        branches = [following for following, _ in node.next_functions]
        if kind in ("Mul", "Div") and None in branches[:2]:
            other = node._saved_other if branches[-1] is None else node._saved_self if kind == "Mul" else None
            if other is not None and other.dim() == 0 and not other.is_complex():
                yield float(other), kind == "Div"
        if kind in ("Add", "Sub") and getattr(node, "_saved_alpha", 1) != 1:
            yield float(node._saved_alpha), False
        nodes += reversed(branches)


def set_timeout(group: ProcessGroup, timeout: timedelta) -> None:
    """Sets the timeout for the collectives of a process group.

    Older versions have only the private `distributed_c10d._set_pg_timeout`. The public `torch.distributed.set_timeout`
    was added in https://github.com/pytorch/pytorch/pull/187387.
    """
    public = vars(distributed_c10d).get("set_timeout")
    (public or distributed_c10d._set_pg_timeout)(timeout, group)


def reduces_all(replica: DistributedDataParallel) -> bool:
    """Returns whether no gradient of a DDP replica is still waiting to be reduced.

    This holds if the last backward pass computed gradients for all parameters of the replica or for none of them. Calls
    `DistributedDataParallel._check_reducer_finalized`. torch itself reports the problem only in the next backward pass.
    No issue found.
    """
    try:
        replica._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def copy_all(targets: Sequence[Tensor], sources: Iterable[Tensor]) -> None:
    """Copies tensors with a single CUDA kernel: `torch.foreach.copy_`, or `torch._foreach_copy_` in older versions.

    The function is public since https://github.com/pytorch/pytorch/pull/193607.
    """
    if targets:
        _copy(list(targets), list(sources))


def lerp_all(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Interpolates tensors with a single CUDA kernel.

    Calls `torch.foreach.lerp_`, or `torch._foreach_lerp_` in older versions. The function is public since
    https://github.com/pytorch/pytorch/pull/193607.
    """
    _lerp(list(targets), list(sources), weight)


def norm_all(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the Euclidean norm of each tensor, with few CUDA kernels.

    Calls `torch.foreach.norm`, or `torch._foreach_norm` in older versions. The function is public since
    https://github.com/pytorch/pytorch/pull/193607.
    """
    return _norm(list(tensors)) if tensors else ()


def scale_of(scaler: torch.amp.GradScaler) -> Tensor | None:
    """Returns the scale of a gradient scaler as a tensor on its device, or None before the first use of the scaler.

    Reads `GradScaler._scale`, because the public `get_scale` synchronizes with the device. No issue found.
    """
    return scaler._scale


def version_of(tensor: Tensor) -> int:
    """Returns how often a tensor, or a tensor that shares its memory, was modified in place, from `Tensor._version`.

    torch documents this counter in its notes on autograd mechanics, but has no public name for it. No issue found.
    """
    return tensor._version


def is_compiled(module: nn.Module) -> bool:
    """Returns whether a module was compiled in place by `module.compile()`, from `nn.Module._compiled_call_impl`.

    There is no public API for this case. Only the wrapper that `torch.compile(module)` returns has a class of its own,
    `torch._dynamo.OptimizedModule`. No issue found.
    """
    return module._compiled_call_impl is not None


# The following functions run the steps that FSDP2 runs before and after the forward pass of a sharded module. They use
# `FSDPModule._get_fsdp_state()`. The public `register_fsdp_forward_method` requires the name of a method in advance.


def begin_forward(sharded: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Gathers the parameters of a sharded module before a forward pass, and returns the arguments. No issue found."""
    return sharded._get_fsdp_state()._pre_forward(sharded, args, kwargs)


def end_forward(sharded: Any, args: Any, outputs: Any) -> Any:
    """Frees the parameters of a sharded module after a forward pass, and returns the outputs.

    The backward pass of the outputs gathers the parameters again. No issue found.
    """
    return sharded._get_fsdp_state()._post_forward(sharded, args, outputs)


def is_computing(sharded: Any) -> bool:
    """Returns whether a forward pass of a sharded module is running. No issue found."""
    return sharded._get_fsdp_state()._training_state.name == "FORWARD"


def begin_backward(sharded: Any) -> Callable[[Tensor], Tensor]:
    """Returns a gradient hook for the outputs of a sharded module.

    The hook gathers the parameters for the backward pass, and schedules the reduction of their gradients at its end.
    No issue found.
    """
    return sharded._get_fsdp_state()._pre_backward


def global_module_hooks() -> dict[str, Any]:
    """Returns the global module hooks, which `torch.nn.modules.module.register_module_forward_hook` and others add.

    Reads the variables `_global_...` of that Python module, because the public functions can only add hooks.
    No issue found.
    """
    hooks = {name: value for name, value in vars(module_file).items() if name.startswith("_global_")}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in hooks.items()}


def set_global_module_hooks(hooks: dict[str, Any]) -> None:
    """Replaces the global module hooks in place; see `global_module_hooks`."""
    for name, value in hooks.items():
        if isinstance(value, dict):
            current = getattr(module_file, name)
            current.clear()
            current.update(value)
        else:
            setattr(module_file, name, value)


def print_options() -> dict[str, Any]:
    """Returns the current settings of `torch.set_printoptions`, from `torch._tensor_str.PRINT_OPTS`.

    torch has no public function that returns these settings. No issue found.
    """
    return asdict(_tensor_str.PRINT_OPTS)
