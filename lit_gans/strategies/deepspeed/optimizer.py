"""A DeepSpeed engine as a torch optimizer of one network."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lit_gans.common._compat.deepspeed import (
    clear_gradients,
    flat_groups,
    link_optimizer_states,
    prepare_backward,
    read_parameters,
    stored_gradients,
    zero3_shape,
    zero3_shard,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.gradients import AVERAGED, NONE, Gradients, State
from lit_gans.strategies.module_networks import parameters_of

_USED = State("none")  # after a step until zero_grad(): torch keeps the gradients so long, an engine does not
_ZERO_GRAD = "Call zero_grad() of the optimizer after each step, or before the backward."


class EngineOptimizer(torch.optim.Optimizer):
    """A DeepSpeed engine as the optimizer that `self.optimizers()` returns.

    An engine replaces the parameters of the optimizer that it is created from by flat shards. This one has those of the
    module, as `toggle_optimizer` needs them, and steps and clears what the engine stores. Learning rates and other
    settings are those of the user's optimizer, which schedulers change; its own `step` is refused, since it has no
    gradients.

    States have torch's format, with full tensors.

    Args:
        gradients: state of the network's gradients.
        optimizer: of the user, before the engine is created.
        stage: stage of ZeRO.
        shard: returns this rank's shard of a full tensor of a parameter's shape, under stage 3.
        saved: returns what a checkpoint stores of a full tensor.
    """

    engine: Any  # to be set once it is created
    places: list[int]  # where the engine has put the parameters

    def __init__(
        self,
        gradients: Gradients,
        optimizer: torch.optim.Optimizer,
        stage: int,
        shard: Callable[[Tensor, nn.Parameter], Tensor],
        saved: Callable[[Tensor], Tensor],
    ) -> None:  # not torch's own, which would add the parameters to groups again
        self.gradients, self.name = gradients, gradients.network
        self.stage, self.defaults = stage, optimizer.defaults
        self.parameters = parameters_of(optimizer)
        self.param_groups = [_Group(group) for group in optimizer.param_groups]
        self._given, self._shard, self._saved = optimizer, shard, saved
        self._saved_groups = optimizer.state_dict()["param_groups"]
        # Lightning's wrapper inherits these methods and shares attributes only as long as nobody assigns them
        self._reached: set[int] = set()  # ids of the parameters that backwards have reached since the last `zero_grad`
        self._reached_before: set[int] = set()  # and before any earlier step
        self._steps = False  # whether the engine is currently stepping
        optimizer.register_step_pre_hook(self._refuse_lone_step)

    @property
    def state(self) -> Any:
        """States of the user's optimizer, whose keys are flat shards from stage 1 on."""
        return self._given.state

    # ---- a step

    def begin_backward(self, loss: Tensor, leaves: set[int]) -> None:
        """Prepares the engine for a backward of a loss that reaches parameters of some ids."""
        if self.gradients.state is _USED:
            raise RefusedInput(
                f"a backward of {self.name} after its step without zero_grad() between them: torch would add to the"
                f" gradients of that step, which DeepSpeed has not kept. {_ZERO_GRAD}"
            )
        self._reached |= leaves
        if self.stage in (1, 2) and self.gradients.state is AVERAGED:
            raise RefusedInput(
                f"two backwards of {self.name} before its step, but ZeRO stage {self.stage} would store the"
                " gradients of the last one only: add up the losses, or put all but the last into"
                " `with self.trainer.strategy.block_backward_sync():`."
            )
        if self.stage:
            prepare_backward(self.engine, loss)

    def place_gradients(self) -> None:
        """Lets whoever reads a gradient know that the engine has it."""
        if self.stage and self.gradients.state is AVERAGED:
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = parameter.new_empty(()).expand(parameter.shape).as_subclass(StoredGradient)

    def remove_gradients(self) -> None:
        """Removes what `place_gradients` has placed, before the engine computes."""
        for parameter in self.parameters:
            if isinstance(parameter.grad, StoredGradient):
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None if closure is None else closure()
        if self.gradients.state is _USED:
            raise RefusedInput(
                f"two steps of {self.name} without zero_grad() between them, but DeepSpeed steps with gradients only"
                f" once. {_ZERO_GRAD}"
            )
        self.gradients.refuse_local()
        if self.gradients.state is not AVERAGED:  # without gradients
            return result
        self.remove_gradients()
        self._refuse_zero_gradients()
        self.take_over()
        self._steps = True
        try:
            self.engine.step()
        finally:
            self._steps = False
        self._forget()
        self.gradients.state = _USED
        return result

    def _refuse_zero_gradients(self) -> None:
        """Raises `RefusedInput` where a step would move parameters without gradients, which ZeRO gives zeros."""
        own = {id(parameter) for parameter in self.parameters}
        decays = any(group.get("weight_decay") for group in self.param_groups)
        others = (own if decays else own & self._reached_before) - self._reached
        self._reached_before |= own & self._reached
        remembers = any(group.get("momentum", True) for group in self.param_groups)
        if self.stage and others and (remembers or decays):
            raise RefusedInput(
                f"the backwards before a step of {self.name} reached only some of its parameters, and ZeRO would move"
                " the others by their momentum or weight decay: give them an optimizer of their own, or use"
                " NetworkFSDP."
            )

    def take_over(self) -> None:
        """Lets the engine step from the parameters as they are, since modules clip or restore them."""
        if self.stage not in (1, 2):
            return
        if [parameter.data_ptr() for parameter in self.parameters] != self.places:
            raise RefusedInput(
                f"a parameter of {self.name} got another tensor than the one that its engine steps: change it in place,"
                " as parameter.data.copy_(value) does, instead of setting parameter.data."
            )
        read_parameters(self.engine)

    def refuse_changes(self) -> None:
        """Raises `RefusedInput` if parameters that stage 3 has gathered are others than it stores."""
        for parameter in self.parameters:
            if parameter.shape == zero3_shape(parameter):
                now = self._shard(parameter.detach(), parameter)
                if not torch.equal(zero3_shard(parameter)[: len(now)], now):
                    raise RefusedInput(
                        f"{self.name} was changed other than by a step, which ZeRO stage 3 loses: use"
                        " NetworkDeepSpeed(stage=2)."
                    )

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.remove_gradients()
        self._forget()
        clear_gradients(self.engine, set_to_none)

    def _forget(self) -> None:
        self.gradients.state = NONE
        self._reached.clear()
        if self.stage == 3:  # which would step once more with the last gradients of what a backward does not reach
            for gradients in stored_gradients(self.engine, self.stage):
                gradients.zero_()

    def _refuse_lone_step(self, *_: Any) -> None:
        if not self._steps:
            raise RefusedInput(
                f"the torch optimizer of {self.name} has no gradients of its own under DeepSpeed: step the optimizer"
                " that self.optimizers() returns."
            )

    # ---- states

    def flat_groups(self) -> list[tuple[list[nn.Parameter], Tensor]]:
        """Returns the groups of parameters that ZeRO flattened, each with this rank's flat shard."""
        return flat_groups(self.engine, self.stage) if self.stage else []

    def state_dict(self) -> dict[str, Any]:
        """Returns the states as a checkpoint stores them, with full tensors or DTensors; every rank must call it."""
        from deepspeed.utils import safe_get_full_optimizer_state

        if not self.stage:
            return self._given.state_dict()
        indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        states: dict[int, dict[str, Any]] = {}
        with _unfrozen(self.parameters):
            for parameters, flat in self.flat_groups():
                for parameter in parameters:
                    states[indices[id(parameter)]] = {
                        key: self._saved(safe_get_full_optimizer_state(parameter, key))
                        if _belongs(value, flat)
                        else deepcopy(value)  # a separate step for each, since torch.load would keep them shared
                        for key, value in self.state[flat].items()
                    }
        groups = [
            {key: now[key] if key != "params" else value for key, value in saved.items()}
            for saved, now in zip(self._saved_groups, self.param_groups, strict=True)
        ]
        return {"state": {index: states[index] for index in sorted(states)}, "param_groups": groups}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Loads full states."""
        if not self.stage:
            return self._given.load_state_dict(dict(saved))
        for group, values in zip(self.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in values.items() if key != "params"})
        states = {id(parameter): saved["state"].get(index, {}) for index, parameter in enumerate(self.parameters)}
        for parameters, flat in self.flat_groups():
            self.state[flat] = self._empty_state(states[id(parameters[0])], parameters[0], flat)
        if self.stage < 3:
            link_optimizer_states(self.engine)
        for parameters, flat in self.flat_groups():
            for parameter in parameters:
                for key, value in states[id(parameter)].items():
                    if _belongs(self.state[flat][key], flat):
                        self._set(parameter, key, value.to(flat.device))

    def _empty_state(self, state: Mapping[str, Any], parameter: nn.Parameter, flat: Tensor) -> dict[str, Any]:
        """Returns the state of a flat shard, with zeros for entries that have the shape of its first parameter."""
        shape = zero3_shape(parameter) if self.stage == 3 else parameter.shape
        return {
            key: torch.zeros_like(flat) if isinstance(value, Tensor) and value.shape == shape else deepcopy(value)
            for key, value in state.items()
        }

    def _set(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        if self.stage == 3:
            safe_set_local_optimizer_state(parameter, with_padding(self._shard(value, parameter), parameter), key)
        else:
            safe_set_full_optimizer_state(parameter, value, key)


class StoredGradient(Tensor):
    """Stands for a gradient that an engine stores: whatever is computed with it raises `RefusedInput`."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RefusedInput(
            "DeepSpeed's engines store the gradients, which a module can neither read nor change: clip them by"
            ' NetworkDeepSpeed(config={"gradient_clipping": VALUE}), and for anything else use NetworkDDP.'
        )


class AllGroups:
    """An optimizer as its scheduler sees it: with the groups without parameters, which DeepSpeed removes."""

    def __init__(self, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
        self._optimizer, self.param_groups = optimizer, groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


class _Group(ChainMap[str, Any]):
    """A parameter group with the parameters that it had at first, and all settings as they are now."""

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__({"params": group["params"]}, group)

    def __setitem__(self, key: str, value: Any) -> None:
        self.maps[1][key] = value


def with_padding(shard: Tensor, parameter: nn.Parameter) -> Tensor:
    """Returns a shard of a parameter with zeros behind it, up to the size that stage 3 gives to every rank."""
    return pad(shard, (0, zero3_shard(parameter).numel() - shard.numel()))


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
