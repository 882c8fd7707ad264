"""Private APIs of other libraries that the strategies need, each with the reason for its use.

`pyproject.toml` sets upper bounds for lightning, torch and deepspeed; `tests/strategies/test_compat.py` fails once an
entry breaks or is obsolete.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch import Tensor, nn
from torch.distributed import ProcessGroup, distributed_c10d
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

__all__ = [  # in addition to the functions below
    "NormBase",  # the base class of norms with running statistics has no public name
    "tree_leaves",  # torch has no public function to traverse the outputs of a module
]

# ---- torch

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


# ---- Lightning


def children(launcher: object) -> list[subprocess.Popen]:
    """Returns the processes that Lightning started; its launcher is private, and its `kill` does not wait for them."""
    return list(launcher.procs) if isinstance(launcher, _SubprocessScriptLauncher) else []


def process_group_backend(strategy: DDPStrategy | ModelParallelStrategy) -> str:
    """Returns the backend that Lightning will choose; the public property is None until the group exists."""
    return strategy._get_process_group_backend()


def finds_unused_parameters(strategy: DDPStrategy) -> bool:
    """Returns whether Lightning's DDP supports frozen networks, from its private attribute with DDP's arguments."""
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def run_step_hooks(strategy: Any, module: LightningModule, optimizer: torch.optim.Optimizer) -> None:
    """Runs `on_before_optimizer_step` and Lightning's clipping when an engine steps instead of the optimizer.

    Lightning's own DeepSpeed plugin calls the same private method.
    """
    strategy.precision_plugin._after_closure(module, optimizer)


def set_data_parallel_size(strategy: ModelParallelStrategy, size: int) -> None:
    """Sets the data parallel size, a constructor argument that is known only once the trainer exists.

    Lightning's "auto" is always the number of nodes, regardless of the tensor parallel size.
    """
    strategy._data_parallel_size = size


def synchronises_batch_norm(strategy: DDPStrategy | ModelParallelStrategy) -> bool:
    """Whether the trainer has `sync_batchnorm=True`, from the strategy's private plugin."""
    return strategy._layer_sync is not None


def accept_without_configure_model(module: LightningModule) -> None:
    """Lets Lightning accept a module without `configure_model`, since the strategy shards the networks itself.

    Lightning looks for an override on the instance, so that the class need not change.
    """
    if type(module).configure_model is LightningModule.configure_model:
        module.configure_model = lambda: None


# ---- DeepSpeed: the state of an engine's optimizer is in undocumented attributes


def prepare_backward(engine: Any, loss: Tensor) -> None:
    """Prepares an engine for backward as its forward would, which is bypassed by calling the plain network."""
    engine.optimizer.clear_backward_seen_flag()
    loss.register_hook(lambda _: engine._backward_prologue())


def flat_groups(engine: Any, stage: int) -> list[tuple[list[nn.Parameter], Tensor]]:
    """Returns the groups of parameters that ZeRO flattened, each with this rank's flat shard."""
    zero = engine.optimizer
    if stage == 3:
        return list(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True))
    return list(zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True))


def stored_gradients(engine: Any, stage: int) -> list[Tensor]:
    """Returns the gradients that ZeRO stores on this rank in addition to those of the parameters."""
    zero = engine.optimizer
    if stage == 3:
        return [zero.grad_partitions_flat_buffer]
    stored = [*zero.averaged_gradients.values(), *zero.all_grad_tensors.values()]
    return [tensor for tensors in stored if tensors is not None for tensor in tensors]


def link_optimizer_states(engine: Any) -> None:
    """Lets stages 1 and 2 find the optimizer states of each parameter, as after a first step."""
    engine.optimizer._lazy_init_hp_params_optimizer_state()


def zero3_shard(parameter: nn.Parameter) -> Tensor:
    """Returns this rank's flat shard of a parameter under stage 3; the last rank's is padded."""
    return parameter.ds_tensor


def zero3_shape(parameter: nn.Parameter) -> torch.Size:
    """Returns the full shape of a parameter under stage 3, whose own shape is empty while it is sharded."""
    return parameter.ds_shape


def forbid_compiled_operations(deepspeed: Any) -> None:
    """Prevents DeepSpeed from compiling operations: on a CPU, the ranks would compile one for communication at the
    start, and wait forever if such a compilation had been killed before.
    """
    deepspeed.ops.__compatible_ops__ = {}
