"""An optimizer whose parameters ZeRO flattened and cut over the ranks: its states as torch saves them, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.strategies.module_networks import parameters_of


class ZeroOptimizer:
    """What an optimizer was before a DeepSpeed engine took it, and the way between its states and the engine's.

    Args:
        optimizer: before the engine is made; `engine` is set then.
        stage: of ZeRO.
    """

    engine: Any

    def __init__(self, optimizer: torch.optim.Optimizer, stage: int) -> None:
        self.optimizer, self.stage = optimizer, stage
        self.parameters = parameters_of(optimizer)
        self._saved_groups = optimizer.state_dict()["param_groups"]

    def groups(self) -> list[tuple[list[nn.Parameter], Tensor]]:
        """Returns the groups of parameters that ZeRO flattened, each with this rank's flat part."""
        zero = self.engine.optimizer
        if self.stage == 3:
            return list(zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True))
        return list(zip(zero.bit16_groups, zero.single_partition_of_fp32_groups, strict=True))

    def gradients(self) -> list[Tensor]:
        """Returns what ZeRO keeps of gradients on this rank, beside those of the parameters."""
        zero = self.engine.optimizer
        if self.stage == 3:
            return [zero.grad_partitions_flat_buffer]
        kept = [*zero.averaged_gradients.values(), *zero.all_grad_tensors.values()]
        return [tensor for tensors in kept if tensors is not None for tensor in tensors]

    def state_dict(self) -> dict[str, Any]:
        """Returns the states with whole tensors, on the CPU; every rank must call it."""
        from deepspeed.utils import safe_get_full_optimizer_state

        indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        states: dict[int, dict[str, Any]] = {}
        with _unfrozen(self.parameters):
            for parameters, flat in self.groups():
                for parameter in parameters:
                    states[indices[id(parameter)]] = {
                        key: safe_get_full_optimizer_state(parameter, key).cpu()
                        if _belongs(value, flat)
                        else deepcopy(value)  # a step of its own for each: torch.load would keep that they are one
                        for key, value in self.optimizer.state[flat].items()
                    }
        groups = [
            {key: now[key] if key != "params" else value for key, value in saved.items()}
            for saved, now in zip(self._saved_groups, self.optimizer.param_groups, strict=True)
        ]
        return {"state": {index: states[index] for index in sorted(states)}, "param_groups": groups}

    def load_state_dict(self, saved: Mapping[str, Any], cut: Callable[[Tensor, nn.Parameter], Tensor]) -> None:
        """Takes whole states. `cut` returns this rank's part of a tensor that belongs to a parameter."""
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        for group, values in zip(self.optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in values.items() if key != "params"})
        states = {id(parameter): saved["state"].get(index, {}) for index, parameter in enumerate(self.parameters)}
        for parameters, flat in self.groups():
            shape = getattr(parameters[0], "ds_shape", parameters[0].shape)
            self.optimizer.state[flat] = {
                key: torch.zeros_like(flat) if isinstance(value, Tensor) and value.shape == shape else deepcopy(value)
                for key, value in states[id(parameters[0])].items()
            }
        if self.stage < 3:
            self.engine.optimizer._lazy_init_hp_params_optimizer_state()
        for parameters, flat in self.groups():
            for parameter in parameters:
                for key, value in states[id(parameter)].items():
                    if not _belongs(self.optimizer.state[flat][key], flat):
                        continue
                    value = value.to(flat.device)
                    if self.stage == 3:
                        safe_set_local_optimizer_state(parameter, cut(value, parameter), key)
                    else:
                        safe_set_full_optimizer_state(parameter, value, key)


@contextmanager
def _unfrozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Lets all require gradients: DeepSpeed knows no optimizer states of others."""
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _belongs(value: Any, flat: Tensor) -> bool:
    """Whether an entry of an optimizer's state has one element for each of the parameters'."""
    return isinstance(value, Tensor) and value.shape == flat.shape
