"""Private APIs of DeepSpeed. Checked with deepspeed 0.19.8.

DeepSpeed marks few names as private: here are those that its documentation does not mention.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn


def prepare_backward(engine: Any, loss: Tensor) -> None:
    """Prepares an engine for backward as its forward would, which is bypassed by calling the plain network.

    Calls `clear_backward_seen_flag`, without which stage 3 loses the gradients of earlier microbatches, and
    `_backward_prologue`, without which the timers of `wall_clock_breakdown` fail. Hooks on the outputs of the engine's
    forward call them since https://github.com/deepspeedai/DeepSpeed/pull/7665, with no public call.
    """
    engine.optimizer.clear_backward_seen_flag()
    loss.register_hook(lambda _: engine._backward_prologue())


def backward_into(engines: list[Any], loss: Tensor, inputs: list[nn.Parameter], stage: int, retain_graph: bool) -> None:
    """Runs a backward that gives gradients to some parameters only, those of several engines, which `engine.backward`
    cannot.

    From stage 1 on, `prepare_backward` lets each engine finish it; `_backward_epilogue` does so under stage 0, where
    DeepSpeed refuses a backward other than the engine's: https://github.com/deepspeedai/DeepSpeed/pull/7665.
    """
    loss.backward(inputs=inputs, retain_graph=retain_graph)
    for engine in engines if not stage else ():
        engine._backward_epilogue()


def flat_groups(engine: Any, stage: int) -> list[tuple[list[nn.Parameter], Tensor]]:
    """Returns the groups of parameters that ZeRO flattened, each with this rank's flat shard.

    From the attributes `bit16_groups` and `single_partition_of_fp32_groups`, under stage 3 `fp16_groups` and
    `fp32_partitioned_groups_flat`. The public functions access the state of one parameter at a time, and only once
    there is one (https://github.com/deepspeedai/DeepSpeed/issues/6506); a torch optimizer's state belongs to the flat
    shard.
    """
    zero = engine.optimizer
    if stage == 3:
        return list(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True))
    return list(zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True))


def stored_gradients(engine: Any, stage: int) -> list[Tensor]:
    """Returns the gradients that ZeRO stores on this rank in addition to those of the parameters.

    From the attributes `averaged_gradients` and `all_grad_tensors`, under stage 3 `grad_partitions_flat_buffer`. The
    public `safe_get_full_grad` gathers copies: https://github.com/deepspeedai/DeepSpeed/issues/7644.
    """
    zero = engine.optimizer
    if stage == 3:
        return [zero.grad_partitions_flat_buffer]
    stored = [*zero.averaged_gradients.values(), *zero.all_grad_tensors.values()]
    return [tensor for tensors in stored if tensors is not None for tensor in tensors]


def clear_gradients(engine: Any, set_to_none: bool) -> None:
    """Clears the gradients of an engine's parameters, by `zero_grad` of its optimizer.

    The public `engine.zero_grad` has no `set_to_none`. No issue found.
    """
    engine.optimizer.zero_grad(set_to_none)


def read_parameters(engine: Any) -> None:
    """Copies changed parameters to the shards that stages 1 and 2 step, by `refresh_fp32_params` of their optimizer.

    It is not documented, and a step would otherwise undo changes. No issue found.
    """
    engine.optimizer.refresh_fp32_params()


def link_optimizer_states(engine: Any) -> None:
    """Lets stages 1 and 2 find the optimizer states of each parameter, as after a first step.

    Calls `_lazy_init_hp_params_optimizer_state`, which is otherwise called after the first step
    (https://github.com/deepspeedai/DeepSpeed/pull/5104): states cannot be loaded before it.
    """
    engine.optimizer._lazy_init_hp_params_optimizer_state()


def zero3_shard(parameter: nn.Parameter) -> Tensor:
    """Returns this rank's flat shard of a parameter under stage 3, from `ds_tensor`; those of the last ranks end with
    padding, which is never initialized.

    The public `safe_get_local_fp32_param`, of https://github.com/deepspeedai/DeepSpeed/pull/4681, returns None for a
    frozen parameter, and GANs freeze their networks in turn.
    """
    return parameter.ds_tensor  # type: ignore[attr-defined]


def zero3_shape(parameter: nn.Parameter) -> torch.Size:
    """Returns the full shape of a parameter under stage 3, from `ds_shape`; its own is empty while it is sharded.

    There is no public API (https://github.com/deepspeedai/DeepSpeedExamples/issues/659 shows the empty shape).
    """
    return parameter.ds_shape  # type: ignore[attr-defined]


def forbid_compiled_operations(deepspeed: Any) -> None:
    """Prevents DeepSpeed from compiling operations: none is in `deepspeed.ops.__compatible_ops__`.

    On a CPU, the ranks would compile one for communication at the start, and wait forever if such a compilation had
    been killed before. There is no setting; https://github.com/huggingface/transformers/issues/12715 reports such
    waiting.
    """
    deepspeed.ops.__compatible_ops__ = defaultdict(bool)  # earlier versions ask for some without `get`


def stays_gathered(parameter: nn.Parameter) -> bool:
    """Returns whether stage 3 never frees a parameter, because it is small, from `ds_persist`. No issue found."""
    return parameter.ds_persist  # type: ignore[attr-defined]


def gather_small(engine: Any) -> None:
    """Gathers the small parameters of stage 3, which it never frees after its first step, by `persistent_parameters`.

    Before, it frees what a forward has gathered, and never gathers what is computed with without one. No issue found.
    """
    if small := engine.optimizer.persistent_parameters:
        small[0].all_gather(small)


def zero3_free(parameter: nn.Parameter) -> None:
    """Frees the gathered tensor of a parameter under stage 3, by its method `partition`. No issue found."""
    parameter.partition()  # type: ignore[attr-defined]
