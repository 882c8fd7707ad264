"""DeepSpeed's private parts: the state of an engine's optimizer is in undocumented attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
