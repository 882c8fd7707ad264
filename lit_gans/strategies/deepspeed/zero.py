"""States, in torch's format, of optimizers whose parameters ZeRO has flattened and sharded over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lit_gans.common._compat.deepspeed import flat_groups, link_optimizer_states, zero3_shape, zero3_shard
from lit_gans.strategies.module_networks import parameters_of


class ZeroOptimizer:
    """Converts between the states of a DeepSpeed engine's optimizer and the torch optimizer that it was created from.

    Args:
        optimizer: torch optimizer, before the engine is created.
        stage: stage of ZeRO.
    """

    engine: Any  # to be set once it is created

    def __init__(self, optimizer: torch.optim.Optimizer, stage: int) -> None:
        self.optimizer, self.stage = optimizer, stage
        self.parameters = parameters_of(optimizer)
        self._saved_groups = optimizer.state_dict()["param_groups"]

    @contextmanager
    def showing_parameters(self) -> Iterator[None]:
        """Returns a context in which the optimizer has the parameters that it was created with, not flat shards."""
        groups = self.optimizer.param_groups
        flat, parameters = [group["params"] for group in groups], iter(self.parameters)
        for group, saved in zip(groups, self._saved_groups, strict=True):
            group["params"] = [next(parameters) for _ in saved["params"]]
        try:
            yield
        finally:
            for group, shards in zip(groups, flat, strict=True):
                group["params"] = shards

    def groups(self) -> list[tuple[list[nn.Parameter], Tensor]]:
        """Returns the groups of parameters that ZeRO flattened, each with this rank's flat shard."""
        return flat_groups(self.engine, self.stage)

    def state_dict(self) -> dict[str, Any]:
        """Returns the states with full tensors, on the CPU; every rank must call it."""
        from deepspeed.utils import safe_get_full_optimizer_state

        indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        states: dict[int, dict[str, Any]] = {}
        with _unfrozen(self.parameters):
            for parameters, flat in self.groups():
                for parameter in parameters:
                    states[indices[id(parameter)]] = {
                        key: safe_get_full_optimizer_state(parameter, key).cpu()
                        if _belongs(value, flat)
                        else deepcopy(value)  # a separate step for each, since torch.load would keep them shared
                        for key, value in self.optimizer.state[flat].items()
                    }
        groups = [
            {key: now[key] if key != "params" else value for key, value in saved.items()}
            for saved, now in zip(self._saved_groups, self.optimizer.param_groups, strict=True)
        ]
        return {"state": {index: states[index] for index in sorted(states)}, "param_groups": groups}

    def load_state_dict(self, saved: Mapping[str, Any], shard: Callable[[Tensor, nn.Parameter], Tensor]) -> None:
        """Loads full states. `shard` returns this rank's shard of a full tensor of a parameter's shape."""
        for group, values in zip(self.optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in values.items() if key != "params"})
        states = {id(parameter): saved["state"].get(index, {}) for index, parameter in enumerate(self.parameters)}
        for parameters, flat in self.groups():
            self.optimizer.state[flat] = self._empty_state(states[id(parameters[0])], parameters[0], flat)
        if self.stage < 3:
            link_optimizer_states(self.engine)
        for parameters, flat in self.groups():
            for parameter in parameters:
                for key, value in states[id(parameter)].items():
                    if _belongs(self.optimizer.state[flat][key], flat):
                        self._set(parameter, key, value.to(flat.device), shard)

    def _empty_state(self, state: Mapping[str, Any], parameter: nn.Parameter, flat: Tensor) -> dict[str, Any]:
        """Returns the state of a flat shard, with zeros for entries that have the shape of its first parameter."""
        shape = zero3_shape(parameter) if self.stage == 3 else parameter.shape
        return {
            key: torch.zeros_like(flat) if isinstance(value, Tensor) and value.shape == shape else deepcopy(value)
            for key, value in state.items()
        }

    def _set(
        self, parameter: nn.Parameter, key: str, value: Tensor, shard: Callable[[Tensor, nn.Parameter], Tensor]
    ) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        if self.stage == 3:
            safe_set_local_optimizer_state(parameter, with_padding(shard(value, parameter), parameter), key)
        else:
            safe_set_full_optimizer_state(parameter, value, key)


def with_padding(shard: Tensor, parameter: nn.Parameter) -> Tensor:
    """Returns a shard of a parameter with zeros behind it, up to the size that stage 3 gives to every rank."""
    return pad(shard, (0, zero3_shard(parameter).numel() - shard.numel()))


@contextmanager
def showing_parameters(optimizers: Mapping[str, ZeroOptimizer]) -> Iterator[None]:
    """Returns a context in which all optimizers have the parameters of the module, not flat shards."""
    with ExitStack() as stack:
        for zero in optimizers.values():
            stack.enter_context(zero.showing_parameters())
        yield


@contextmanager
def _unfrozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Makes all parameters require gradients, since DeepSpeed finds no optimizer states of frozen parameters."""
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _belongs(value: Any, flat: Tensor) -> bool:
    """Whether an entry of an optimizer's state has one element for each element of the parameters."""
    return isinstance(value, Tensor) and value.shape == flat.shape
