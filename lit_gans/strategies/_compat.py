"""Private parts of other libraries that the strategies need: each with its reason, and a test that fails once it goes.

`pyproject.toml` bounds the versions of lightning, torch and deepspeed from above for what stands here. Tests:
`tests/strategies/test_compat.py`.
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

__all__ = [  # and what is defined below
    "NormBase",  # the common class of norms with running statistics has no public name
    "tree_leaves",  # torch has no public way to walk the outputs of a module
]

# ---- torch

# torch 2.15 split `broadcast_buffers`, which it deprecated, in two; older versions have the one name only
_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)
WITHOUT_BUFFER_SYNC = {_BUFFERS: False}


def process_groups() -> list[ProcessGroup]:
    """Returns all process groups of this process: torch has no public list of them."""
    return list(distributed_c10d._world.pg_map)


def set_timeout(group: ProcessGroup, timeout: timedelta) -> None:
    """Sets how long the collectives of a group wait: public from torch 2.15 on."""
    public = vars(distributed_c10d).get("set_timeout")
    (public or distributed_c10d._set_pg_timeout)(timeout, group)


def copy_all(targets: list[Tensor], sources: Iterable[Tensor]) -> None:
    """Copies tensors into others in one kernel on CUDA, which only the private name of a foreach does."""
    torch._foreach_copy_(targets, list(sources))


# ---- Lightning


def children(launcher: object) -> list[subprocess.Popen]:
    """Returns the processes that Lightning started: its class has no public name, and its `kill` waits for none."""
    return list(launcher.procs) if isinstance(launcher, _SubprocessScriptLauncher) else []


def process_group_backend(strategy: DDPStrategy | ModelParallelStrategy) -> str:
    """Returns the backend that Lightning would choose: its property is None until the group exists."""
    return strategy._get_process_group_backend()


def finds_unused_parameters(strategy: DDPStrategy) -> bool:
    """Returns whether Lightning's DDP tolerates frozen networks: it keeps DDP's arguments in a private attribute."""
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def run_step_hooks(strategy: Any, module: LightningModule, optimizer: torch.optim.Optimizer) -> None:
    """Runs `on_before_optimizer_step` and Lightning's clipping, where an engine steps instead of the optimizer.

    Lightning's own DeepSpeed plugin calls the same private method.
    """
    strategy.precision_plugin._after_closure(module, optimizer)


def set_data_parallel_size(strategy: ModelParallelStrategy, size: int) -> None:
    """Sets the data parallel size, which is an argument of the constructor, but known only once the trainer exists.

    Lightning's "auto" is the number of nodes, whatever the tensor parallel size.
    """
    strategy._data_parallel_size = size


def synchronises_batch_norm(strategy: DDPStrategy | ModelParallelStrategy) -> bool:
    """Whether the trainer has `sync_batchnorm=True`: only the strategy's private plugin tells."""
    return strategy._layer_sync is not None


def accept_without_configure_model(module: LightningModule) -> None:
    """Lets Lightning accept a module without `configure_model`, where it expects the sharding: ours is in the strategy.

    Lightning looks for an override on the instance, so that the class stays as it is.
    """
    if type(module).configure_model is LightningModule.configure_model:
        module.configure_model = lambda: None


# ---- DeepSpeed: it keeps what belongs to an engine's optimizer in attributes without documentation


def prepare_backward(engine: Any, loss: Tensor) -> None:
    """Does what an engine's own forward would do before a backward: here the plain network computes, not the engine."""
    engine.optimizer.clear_backward_seen_flag()
    loss.register_hook(lambda _: engine._backward_prologue())


def flat_groups(engine: Any, stage: int) -> list[tuple[list[nn.Parameter], Tensor]]:
    """Returns the groups of parameters that ZeRO flattened, each with this rank's flat shard."""
    zero = engine.optimizer
    if stage == 3:
        return list(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True))
    return list(zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True))


def stored_gradients(engine: Any, stage: int) -> list[Tensor]:
    """Returns the gradients that ZeRO stores on this rank, beside those of the parameters."""
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
    """Returns the shape of a full parameter under stage 3: its own is empty while it is sharded."""
    return parameter.ds_shape


def forbid_compiled_operations(deepspeed: Any) -> None:
    """Lets DeepSpeed find no operation to compile: on a CPU the ranks would compile one for communication at the start,
    and wait for ever where such a compilation was once killed.
    """
    deepspeed.ops.__compatible_ops__ = {}
