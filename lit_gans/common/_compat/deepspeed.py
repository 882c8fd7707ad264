"""Private APIs of DeepSpeed. Checked with deepspeed 0.19.8.

DeepSpeed marks few names as private. Names that DeepSpeed's documentation does not mention are
wrapped here, too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput


def prepare_backward(engine: Any, loss: Tensor) -> None:
    """Prepares an engine for a backward pass.

    The engine's own forward pass would do this, but the strategy calls the plain network instead. This function calls
    `clear_backward_seen_flag`, without which stage 3 loses the gradients of previous microbatches. It also calls
    `_backward_prologue`, without which the timers of `wall_clock_breakdown` fail. Since
    https://github.com/deepspeedai/DeepSpeed/pull/7665, hooks on the outputs of the engine's forward pass call both
    methods. There is no public function.
    """
    engine.optimizer.clear_backward_seen_flag()
    loss.register_hook(lambda _: engine._backward_prologue())


def backward_into(engines: list[Any], loss: Tensor, inputs: list[nn.Parameter], stage: int, retain_graph: bool) -> None:
    """Runs a backward pass that computes gradients only for the given parameters, which can belong to several engines.

    `engine.backward` does not support this. From stage 1 on, `prepare_backward` ensures that each engine finishes the
    backward pass. In stage 0, DeepSpeed supports only the engine's own backward pass
    (https://github.com/deepspeedai/DeepSpeed/pull/7665), so this function calls `_backward_epilogue`.
    """
    loss.backward(inputs=inputs, retain_graph=retain_graph)
    for engine in engines if not stage else ():
        engine._backward_epilogue()


def flat_groups(engine: Any, stage: int) -> list[tuple[list[nn.Parameter], Tensor]]:
    """Returns the groups of parameters that ZeRO has flattened, and this rank's flat shard of each group.

    Reads the attributes `bit16_groups` and `single_partition_of_fp32_groups`, or in stage 3 `fp16_groups` and
    `fp32_partitioned_groups_flat`. The public functions access the optimizer state of a single parameter, and only if
    the state exists already (https://github.com/deepspeedai/DeepSpeed/issues/6506). The state of a torch optimizer,
    however, belongs to the flat shard.
    """
    zero = engine.optimizer
    if stage == 3:
        return list(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True))
    return list(zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True))


def stored_gradients(engine: Any, stage: int) -> list[Tensor]:
    """Returns the gradients that ZeRO stores on this rank in addition to the `grad` of the parameters.

    Reads the attributes `averaged_gradients` and `all_grad_tensors`, or in stage 3 `grad_partitions_flat_buffer`. The
    public `safe_get_full_grad` gathers copies instead: https://github.com/deepspeedai/DeepSpeed/issues/7644.
    """
    zero = engine.optimizer
    if stage == 3:
        return [zero.grad_partitions_flat_buffer]
    stored = [*zero.averaged_gradients.values(), *zero.all_grad_tensors.values()]
    return [tensor for tensors in stored if tensors is not None for tensor in tensors]


def clear_gradients(engine: Any, set_to_none: bool) -> None:
    """Clears the gradients of an engine's parameters, with the method `zero_grad` of its optimizer.

    The public `engine.zero_grad` has no argument `set_to_none`. No issue found.
    """
    engine.optimizer.zero_grad(set_to_none)


def clip_next_step(engine: Any, max_norm: float | None) -> None:
    """Sets the maximum norm of the gradients in the next step of stages 1 to 3. A smaller norm, if set before, remains.

    Sets the attribute `clip_grad` of the optimizer. The public setting `gradient_clipping` is read once. No issue
    found.

    Args:
        engine: engine.
        max_norm: maximum norm. None restores the value of `gradient_clipping`.

    Raises:
        RefusedInput: the configuration does not let ZeRO compute the norm.
    """
    zero = engine.optimizer
    if max_norm is None:
        zero.clip_grad = engine.gradient_clipping()
        return
    if not getattr(zero, "compute_grad_norm", True):  # stages 1 and 2 have it
        raise RefusedInput(
            "compute_grad_norm=false of zero_optimization in the DeepSpeed config computes no norm of the gradients, so"
            " that self.clip_gradients has no effect: leave it out."
        )
    zero.clip_grad = min(max_norm, zero.clip_grad or max_norm)


def clips_next_step(engine: Any) -> bool:
    """Returns whether a smaller norm than that of the configuration is set, see `clip_next_step`."""
    return engine.optimizer.clip_grad != engine.gradient_clipping()


def read_parameters(engine: Any) -> None:
    """Copies changed parameters to the flat fp32 shards that the optimizers of stages 1 and 2 update.

    Otherwise, the next optimizer step would undo the changes. Calls the undocumented method `refresh_fp32_params` of
    the optimizer. No issue found.
    """
    engine.optimizer.refresh_fp32_params()


def link_optimizer_states(engine: Any) -> None:
    """Links each parameter to its optimizer state in stages 1 and 2, as DeepSpeed does after the first step.

    Without these links, optimizer states cannot be loaded before the first step. Calls the method
    `_lazy_init_hp_params_optimizer_state` of the optimizer (https://github.com/deepspeedai/DeepSpeed/pull/5104).
    """
    engine.optimizer._lazy_init_hp_params_optimizer_state()


def zero3_shard(parameter: nn.Parameter) -> Tensor:
    """Returns this rank's flat shard of a parameter in stage 3, from `ds_tensor`.

    The shards of the last ranks can end with padding, which is never initialized. The public function
    `safe_get_local_fp32_param` (https://github.com/deepspeedai/DeepSpeed/pull/4681) returns None for frozen parameters,
    but GANs freeze their networks alternately.
    """
    return parameter.ds_tensor  # type: ignore[attr-defined]


def zero3_shape(parameter: nn.Parameter) -> torch.Size:
    """Returns the full shape of a parameter in stage 3, from `ds_shape`.

    While a parameter is sharded, its attribute `shape` is empty
    (https://github.com/deepspeedai/DeepSpeedExamples/issues/659). There is no public API.
    """
    return parameter.ds_shape  # type: ignore[attr-defined]


def zero3_version(parameter: nn.Parameter) -> int:
    """Returns the number of in-place operations on a parameter in stage 3, from `_version`.

    DeepSpeed sets `data` when it gathers, frees or steps the parameter, which does not count. Its `GatheredParameters`
    reads `_version`, too. There is no public API. No issue found.
    """
    return parameter._version


def forbid_compiled_operations(deepspeed: Any) -> None:
    """Prevents DeepSpeed from compiling operations, by clearing `deepspeed.ops.__compatible_ops__`.

    On a CPU, the ranks would otherwise compile a communication operation at startup. If such a compilation was killed
    earlier, the ranks would wait forever, as https://github.com/huggingface/transformers/issues/12715 reports. There is
    no public setting.
    """
    deepspeed.ops.__compatible_ops__ = defaultdict(bool)  # a defaultdict, because earlier versions do not use `get`


def stays_gathered(parameter: nn.Parameter) -> bool:
    """Returns whether a parameter is so small that stage 3 never frees it. Reads `ds_persist`. No issue found."""
    return parameter.ds_persist  # type: ignore[attr-defined]


def gather_small(engine: Any) -> None:
    """Gathers the small parameters of stage 3, which are listed in `persistent_parameters`.

    Stage 3 does not free these parameters after its first step. Before the first step, stage 3 frees them after each
    forward pass, and does not gather them for computations outside of a forward pass. No issue found.
    """
    if small := engine.optimizer.persistent_parameters:
        small[0].all_gather(small)


def zero3_free(parameter: nn.Parameter) -> None:
    """Frees the gathered tensor of a parameter in stage 3, with its method `partition`. No issue found."""
    parameter.partition()  # type: ignore[attr-defined]
