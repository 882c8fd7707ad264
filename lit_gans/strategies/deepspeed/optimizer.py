"""Wraps the DeepSpeed engine of one network as a torch optimizer."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.deepspeed import (
    clear_gradients,
    clip_next_step,
    clips_next_step,
    flat_groups,
    link_optimizer_states,
    prepare_backward,
    read_parameters,
    stored_gradients,
    zero3_shape,
    zero3_shard,
    zero3_version,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.gradients import AVERAGED, NONE, Gradients, GradientState
from lit_gans.strategies.module_networks import parameters_of

# state from a step until zero_grad(): torch would still hold the gradients, but a DeepSpeed engine does not
_USED = GradientState("none")
# count steps, but do not compute with the count
_IGNORE_COUNT = (torch.optim.RMSprop, torch.optim.Rprop, torch.optim.Adadelta)
_ZERO_GRAD = "Call zero_grad() of the optimizer after each step, or before the backward pass."


class EngineOptimizer(torch.optim.Optimizer):
    """Optimizer that wraps a DeepSpeed engine. `self.optimizers()` returns it under `NetworkDeepSpeed`.

    When an engine is created, it replaces the parameters in the user's optimizer by flat shards. This optimizer holds
    the parameters of the module instead, because `toggle_optimizer` needs them. `step` and `zero_grad` call the engine,
    which stores the gradients. Learning rates and other settings are read from the user's optimizer, so that learning
    rate schedulers take effect. Calling `step` of the user's optimizer raises an error, because it has no gradients.

    The state dict has torch's format, with full tensors.

    Args:
        gradients: state of the network's gradients.
        optimizer: the user's optimizer, before the engine is created.
        stage: stage of ZeRO.
        shard: under stage 3, function that returns this rank's shard of a full tensor with a parameter's shape.
        saved: function that converts a full tensor to the tensor that a checkpoint stores.
    """

    engine: Any  # must be set after the engine is created
    places: list[int]  # memory addresses of the parameters after the engine is created

    def __init__(
        self,
        gradients: Gradients,
        optimizer: torch.optim.Optimizer,
        stage: int,
        shard: Callable[[Tensor, nn.Parameter], Tensor],
        saved: Callable[[Tensor], Tensor],
    ) -> None:
        # does not call `Optimizer.__init__`, which would add the parameters to groups again
        self.gradients, self.name = gradients, gradients.network
        self.stage, self.defaults = stage, optimizer.defaults
        self.parameters = parameters_of(optimizer)
        self.param_groups = [_Group(group) for group in optimizer.param_groups]
        self._given, self._shard, self._saved = optimizer, shard, saved
        self._saved_groups = optimizer.state_dict()["param_groups"]
        # The sets below are changed in place and never assigned again: Lightning's wrapper copies the attributes and
        # inherits the methods, so an assignment in one object would not be visible in the other.
        self._reached: set[int] = set()  # ids of parameters that backward passes have reached since `zero_grad`
        self._reached_before: set[int] = set()  # ids of parameters that were reached before any previous step
        self._versions: dict[int, int] = {}  # under stage 3, `zero3_version` by the parameter's id
        self._kept: list[dict[str, Any] | None] = []  # after `close`, the state dict, or None if it was not kept
        self._is_stepping = False  # whether the engine is currently stepping
        optimizer.register_step_pre_hook(self._refuse_lone_step)

    @property
    def state(self) -> Any:
        """States of the user's optimizer. With stage 1 or higher, the keys are flat shards."""
        return self._given.state

    def close(self, keeps_states: bool) -> None:
        """Must be called before the engine is destroyed, which removes the links to the optimizer states.

        Args:
            keeps_states: whether to gather the states for `state_dict`. If True, every rank must call this method.
        """
        self.remove_gradients()
        if self.stage and not self._kept:  # the trainer keeps the optimizers, and closes them again in `validate`
            self._kept.append(self.state_dict() if keeps_states else None)

    # ---- a step

    def watch(self) -> tuple[RemovableHandle, ...]:
        """Registers hooks that note which parameters the backward passes reach, and returns their handles.

        The graph of a loss does not contain the parameters inside reentrant checkpoints.
        """

        def note(parameter: Tensor) -> None:
            if parameter.requires_grad:  # see `Gradients.watch`
                self._reached.add(id(parameter))

        return tuple(parameter.register_post_accumulate_grad_hook(note) for parameter in self.parameters)

    def begin_backward(self, loss: Tensor) -> None:
        """Prepares the engine for the backward pass of a loss."""
        if self.gradients.state is _USED:
            raise RefusedInput(
                f"{self.name} ran a backward pass after its step without zero_grad() in between: torch would add to the"
                f" gradients of that step, but DeepSpeed no longer has them. {_ZERO_GRAD}"
            )
        if self.stage in (1, 2) and self.gradients.state is AVERAGED:
            raise RefusedInput(
                f"{self.name} ran two backward passes before its step, but ZeRO stage {self.stage} would store only the"
                " gradients of the last pass: add up the losses, or run all backward passes except for the last one in"
                " `with self.trainer.strategy.block_backward_sync():`."
            )
        if not self.stage:
            return
        if clips_next_step(self.engine):
            raise RefusedInput(
                f"{self.name} ran a backward pass after self.clip_gradients, and its engine, which clips when it steps,"
                " would also clip the new gradients: clip after the last backward pass."
            )
        prepare_backward(self.engine, loss)

    def clip(self, max_norm: float) -> None:
        """Lets the engine clip the gradient that it stores to a maximum norm in its next step. Requires stage 1 to 3.

        Does nothing if there is no gradient, as in torch.
        """
        self.gradients.refuse_local()
        if self.gradients.state is AVERAGED:
            clip_next_step(self.engine, max_norm)

    def place_gradients(self) -> None:
        """Sets a `StoredGradient` as the gradient of each parameter whose gradient is stored by the engine."""
        if self.stage and self.gradients.state is AVERAGED:
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = parameter.new_empty(()).expand(parameter.shape).as_subclass(StoredGradient)

    def remove_gradients(self) -> None:
        """Removes the placeholders of `place_gradients`. This must happen before the engine computes."""
        for parameter in self.parameters:
            if isinstance(parameter.grad, StoredGradient):
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None if closure is None else closure()
        if self.gradients.state is _USED:
            raise RefusedInput(
                f"{self.name} was stepped twice without zero_grad() in between, but DeepSpeed can use gradients for"
                f" only one step. {_ZERO_GRAD}"
            )
        self.gradients.refuse_local()
        if self.gradients.state is not AVERAGED:  # there are no gradients
            self.gradients.note_step(False)
            return result
        self.remove_gradients()
        self._refuse_zero_gradients()
        self.take_over()
        self._is_stepping = True
        try:
            self.engine.step()
        finally:
            self._is_stepping = False
        self._forget()
        self.gradients.state = _USED
        return result

    def _refuse_zero_gradients(self) -> None:
        """Raises `RefusedInput` if ZeRO's zeros as gradients of unreached parameters would change the training.

        In this step, momentum or weight decay would change such parameters. In previous steps, ZeRO has counted steps
        for parameters that this step is the first to train, and Adam computes with the count.
        """
        ids = {id(parameter) for parameter in self.parameters}
        if self._reached_before:
            self._refuse_late(self._reached - self._reached_before)
        has_decay = any(group.get("weight_decay") for group in self.param_groups)
        missed = (ids if has_decay else ids & self._reached_before) - self._reached
        self._reached_before |= ids & self._reached
        has_momentum = any(group.get("momentum", True) for group in self.param_groups)
        if self.stage and missed and (has_momentum or has_decay):
            raise RefusedInput(
                f"the backward passes before a step of {self.name} reached only some of its parameters, and ZeRO would"
                " still change the other parameters by momentum or weight decay: pass these parameters to a separate"
                " optimizer, or use NetworkFSDP."
            )

    def _refuse_late(self, late: set[int]) -> None:
        """Raises `RefusedInput` if the optimizer computes with a number of steps that is wrong for new parameters.

        Args:
            late: ids of the parameters that backward passes have reached for the first time after previous steps.
        """
        dampened = any(group.get("dampening") for group in self.param_groups)
        for parameters, flat in self.flat_groups():
            counts = any(not _belongs(value, flat) for value in self.state[flat].values())
            computes = counts and self._computes_with_count()
            if (computes or dampened) and not late.isdisjoint(map(id, parameters)):
                raise RefusedInput(
                    f"the backward passes before a step of {self.name} reached some of its parameters for the first"
                    " time after other parameters had been stepped, but ZeRO counts the steps of all parameters"
                    " together: pass the parameters that are trained later to a separate optimizer, or use NetworkDDP"
                    " or NetworkFSDP."
                )

    def _computes_with_count(self) -> bool:
        """Returns whether the optimizer may compute with the number of its steps. Adagrad does so with `lr_decay`."""
        if type(self._given) is torch.optim.Adagrad:
            return any(group["lr_decay"] for group in self.param_groups)
        return type(self._given) not in _IGNORE_COUNT

    def take_over(self) -> None:
        """Copies the current parameters to the engine before its step, because a module can change them in place.

        For example, a module can clip or restore its parameters.
        """
        if self.stage not in (1, 2):
            return
        if [parameter.data_ptr() for parameter in self.parameters] != self.places:
            raise RefusedInput(
                f"the data of a parameter of {self.name} was replaced by a tensor that its engine does not step: change"
                " the parameter in place, as parameter.data.copy_(value) does, instead of setting parameter.data."
            )
        read_parameters(self.engine)

    def refuse_changes(self) -> None:
        """Raises `RefusedInput` if parameters that stage 3 has gathered differ from its stored shards."""
        for parameter in self.parameters:
            if parameter.shape == zero3_shape(parameter):
                now = self._shard(parameter.detach(), parameter)
                if not torch.equal(zero3_shard(parameter)[: len(now)], now):
                    self._refuse_change()

    def refuse_operations(self) -> None:
        """Raises `RefusedInput` if an in-place operation has run on a parameter of stage 3.

        The operation can have changed the gathered parameter, or the empty tensor that replaces it outside of a forward
        pass. Operations on `parameter.data` are not noticed. This method does not synchronize with the device.
        """
        for parameter in self.parameters:
            version = zero3_version(parameter)
            if self._versions.setdefault(id(parameter), version) != version:
                self._refuse_change()

    def _refuse_change(self) -> None:
        raise RefusedInput(
            f"the parameters of {self.name} were changed outside of an optimizer step, and ZeRO stage 3 loses such"
            " changes: use NetworkDeepSpeed(stage=2)."
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.remove_gradients()
        self._forget()
        clear_gradients(self.engine, set_to_none)

    def _forget(self) -> None:
        self.gradients.state = NONE
        self._reached.clear()
        if self.stage:
            clip_next_step(self.engine, None)
        # Stage 3 would use the previous gradients again for parameters that the next backward pass does not reach.
        if self.stage == 3:
            for gradients in stored_gradients(self.engine, self.stage):
                gradients.zero_()

    def _refuse_lone_step(self, *_: Any) -> None:
        if not self._is_stepping:
            raise RefusedInput(
                f"the torch optimizer of {self.name} has no gradients under DeepSpeed: call step() of the optimizer"
                " that self.optimizers() returns."
            )

    # ---- states

    def flat_groups(self) -> list[tuple[list[nn.Parameter], Tensor]]:
        """Returns the groups of parameters that ZeRO has flattened. Each group comes with this rank's flat shard."""
        return flat_groups(self.engine, self.stage) if self.stage else []

    def state_dict(self) -> dict[str, Any]:
        """Returns the states for a checkpoint, with full tensors or DTensors. Every rank must call this method.

        Parameters that no backward pass has reached before a step have no state, as in torch. After the training, the
        method returns the states of its end.

        Raises:
            RefusedInput: the training has ended with an error, so that its states were not kept.
        """
        from deepspeed.utils import safe_get_full_optimizer_state

        if not self.stage:
            return self._given.state_dict()
        if self._kept:
            if self._kept[0] is None:
                raise RefusedInput(
                    f"the optimizer states of {self.name} cannot be saved after the training has ended with an error,"
                    " because the DeepSpeed engine no longer exists: save checkpoints during the training, as"
                    " ModelCheckpoint does."
                )
            return self._kept[0]
        indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        stepped = self._stepped()
        states: dict[int, dict[str, Any]] = {}
        with _unfrozen(self.parameters):
            for parameters, flat in self.flat_groups():
                for parameter in parameters if self.state[flat] else ():
                    if id(parameter) in stepped:
                        states[indices[id(parameter)]] = {
                            key: self._saved(safe_get_full_optimizer_state(parameter, key))
                            if _belongs(value, flat)
                            else deepcopy(value)  # a separate step count per parameter; torch.load would keep it shared
                            for key, value in self.state[flat].items()
                        }
        groups = [
            {key: now[key] if key != "params" else value for key, value in saved.items()}
            for saved, now in zip(self._saved_groups, self.param_groups, strict=True)
        ]
        return {"state": {index: states[index] for index in sorted(states)}, "param_groups": groups}

    def _stepped(self) -> set[int]:
        """Returns the ids of the parameters that backward passes of any rank have reached before a step."""
        reached = [id(parameter) in self._reached_before for parameter in self.parameters]
        on_any_rank = torch.tensor(reached, dtype=torch.uint8, device=self.parameters[0].device)
        dist.all_reduce(on_any_rank, dist.ReduceOp.MAX)
        pairs = zip(self.parameters, on_any_rank.tolist(), strict=True)
        return {id(parameter) for parameter, is_reached in pairs if is_reached}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Loads states with full tensors.

        Raises:
            RefusedInput: the parameters of a group have different step counts.
        """
        if not self.stage:
            return self._given.load_state_dict(dict(saved))
        for group, values in zip(self.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in values.items() if key != "params"})
        states = {id(parameter): saved["state"].get(index, {}) for index, parameter in enumerate(self.parameters)}
        stepped = [parameter for parameter in self.parameters if states[id(parameter)]]
        self._reached_before.clear()
        self._reached_before.update(map(id, stepped))
        if not stepped:
            return
        for parameters, flat in self.flat_groups():
            # ZeRO steps all groups: a group that was never reached has a count of steps, too
            first, *others = [parameter for parameter in parameters if states[id(parameter)]] or stepped
            compares = self._computes_with_count() and id(first) in map(id, parameters)
            for other in others if compares else ():
                self._refuse_different_counts(states[id(first)], states[id(other)], first)
            self.state[flat] = self._empty_state(states[id(first)], first, flat)
        if self.stage < 3:
            link_optimizer_states(self.engine)
        for parameters, flat in self.flat_groups():
            for parameter in parameters:
                for key, value in states[id(parameter)].items():
                    if _belongs(self.state[flat][key], flat):
                        self._set(parameter, key, value.to(flat.device))

    def _refuse_different_counts(self, one: Mapping[str, Any], other: Mapping[str, Any], first: nn.Parameter) -> None:
        """Raises `RefusedInput` if two states have different values of an entry that a flat shard has only once."""
        shape = self._full_shape(first)
        for key, value in one.items():
            is_count = not isinstance(value, Tensor) or (value.numel() == 1 and value.shape != shape)
            if is_count and value != other.get(key):
                raise RefusedInput(
                    f"the checkpoint has different values of {key} for parameters of {self.name} ({float(value):g} and"
                    f" {float(other.get(key, 0)):g}), because some of them were trained later, but ZeRO has one value"
                    " for all: resume with NetworkDDP, NetworkFSDP or NetworkDeepSpeed(stage=0)."
                )

    def _full_shape(self, parameter: nn.Parameter) -> torch.Size:
        return zero3_shape(parameter) if self.stage == 3 else parameter.shape

    def _empty_state(self, state: Mapping[str, Any], parameter: nn.Parameter, flat: Tensor) -> dict[str, Any]:
        """Returns a new state for a flat shard. Entries with the shape of the state's parameter are zeros."""
        shape = self._full_shape(parameter)
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
    """Placeholder for a gradient that an engine stores. Any computation with it raises `RefusedInput`."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RefusedInput(
            "under DeepSpeed, engines store the gradients, so that a module can neither read nor change them: clip them"
            ' with self.clip_gradients(optimizer, VALUE, "norm"). For any other use of gradients, use NetworkDDP.'
        )


class AllGroups:
    """Optimizer for a learning rate scheduler, with the groups without parameters that DeepSpeed removes."""

    def __init__(self, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
        self._optimizer, self.param_groups = optimizer, groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


class _Group(ChainMap[str, Any]):
    """Parameter group with the original parameters and the current settings of the user's optimizer."""

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__({"params": group["params"]}, group)

    def __setitem__(self, key: str, value: Any) -> None:
        self.maps[1][key] = value


def with_padding(shard: Tensor, parameter: nn.Parameter) -> Tensor:
    """Pads a shard of a parameter with zeros at its end to the size that stage 3 uses on every rank."""
    return pad(shard, (0, zero3_shard(parameter).numel() - shard.numel()))


@contextmanager
def _unfrozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Context manager in which all parameters require gradients.

    Outside of the context, DeepSpeed does not find the optimizer states of frozen parameters.
    """
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _belongs(value: Any, flat: Tensor) -> bool:
    """Returns whether an entry of an optimizer's state has one element for each element of the parameters."""
    return isinstance(value, Tensor) and value.shape == flat.shape
