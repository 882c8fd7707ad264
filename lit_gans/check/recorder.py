"""Records the first optimizer steps of this rank with torch's hooks. The hooks change no values.

The hooks of optimizer steps exist until the check ends. All other hooks exist only while an optimizer is recorded. The
hooks, and what they record:

    before each forward pass of a module    names of networks and parameters, digests of their inputs
    each call of torch.autograd.backward    numbers that multiply the loss, see `backwards.py`
    each gradient of a parameter            contributions of this rank's backward passes, see `backwards.py`
    before and after each optimizer step    gradients, weights, and the line of the script
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from lit_gans.check.backwards import Backwards, Recomputed
from lit_gans.check.names import Names, called_by_scaler, line_of_script, parameters_of, unwrapped
from lit_gans.check.records import WITHOUT_GRADIENT, Call, State, Step, StepStart, Weight
from lit_gans.check.tensors import (
    batches_in,
    digest,
    digest_of,
    digests_of_rows,
    has_rows,
    is_sharded,
    is_whole,
    projection,
    random_state,
    tensors_in,
)
from lit_gans.common._compat.torch import NormBase

_CALLS = 40  # maximum number of recorded forward passes per network
_OUTPUTS = 100_000  # maximum number of recorded rows of outputs
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Recorder:
    """Records the first steps of each optimizer.

    Args:
        steps: number of steps of each optimizer that are recorded.
        publish: function that receives the name of each record, and the record.
        event: function that is called before each recorded step, with the start of the step.
        count: function that is called before each step, with `numbers`.

    Attributes:
        names: names of networks, parameters and optimizers.
        numbers: number of steps of each optimizer so far, by the name of the optimizer.
        states: names of the published states.
        calls, rows: number of recorded inputs of each network, and the total number of rows of its inputs.
        error: error that ended the recording; empty if there was none.
    """

    def __init__(
        self,
        steps: int,
        publish: Callable[[str, Step | Call | State], None],
        event: Callable[[StepStart], None],
        count: Callable[[Mapping[str, int]], None] = lambda numbers: None,
    ) -> None:
        self.steps, self.publish, self.event, self.count = steps, publish, event, count
        self.names = Names()
        self.numbers: Counter[str] = Counter()
        self.states: list[str] = []
        self.calls, self.rows = Counter[str](), Counter[str]()
        self.error = ""
        self._backwards = Backwards(self.names, self._harmless)
        self._outputs: set[str] = set()  # digests of the rows of all outputs
        self._has_gradient = True  # whether autograd is on in the script
        self._depth = 0  # number of modules whose forward passes are running
        self._outermost = ""  # network whose forward pass calls the current modules
        self._outside: set[str] = set()  # networks that only the forward pass of another network calls from outside
        self._with_gradient: set[int] = set()  # ids of the parameters that have had a gradient at a step
        self._copies = weakref.WeakSet[nn.Module]()  # averages that were equal to a network before its first step
        self._pending: dict[int, Step] = {}
        self._handles: list[RemovableHandle] = []
        self._of_optimizers = [
            register_optimizer_step_pre_hook(self._harmless(self._before_step)),
            register_optimizer_step_post_hook(self._harmless(self._after_step)),
        ]
        self._watch()

    # ---- hooks

    def _watch(self) -> None:
        """Registers the hooks of forward and backward passes."""
        if not self._handles:
            self._handles = [
                register_module_forward_pre_hook(self._harmless(self._before_forward)),
                register_module_forward_hook(self._harmless(self._after_forward), with_kwargs=True, always_call=True),
            ]
            self._depth = 0
            self._backwards.watch()

    def _rest(self) -> None:
        """Removes all hooks except the hooks of optimizers, which count steps and detect new optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._backwards.rest()

    def _harmless(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a hook, so that its errors end the recording instead of the script."""

        def harmless(*given: Any) -> Any:
            if self.error:
                return None
            self._has_gradient = torch.is_grad_enabled()
            try:
                with torch.no_grad():
                    return hook(*given)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
                self.close()
                return None

        return harmless

    def close(self) -> None:
        """Removes all hooks."""
        self._rest()
        for handle in self._of_optimizers:
            handle.remove()

    # ---- forward passes

    def _before_forward(self, module: nn.Module, inputs: Any) -> None:
        if self._backwards.reads_factors:
            raise Recomputed
        self._depth += 1
        if self._backwards.is_running:
            return
        if self._depth > 1:
            self._find_outside(module)
            return
        self._outermost, _ = self.names.of_module(module)
        self._outside.discard(self._outermost)
        name = self.names.path(module)
        self._backwards.follow(module)
        synchronizes = getattr(module, "require_backward_grad_sync", None)
        if synchronizes is not None:
            self._backwards.synchronizes[self._outermost] = synchronizes
        positional = inputs if isinstance(inputs, tuple) else ()
        first = next((each for each in positional if isinstance(each, Tensor)), None)
        if first is not None and first.dim() and self._has_gradient and self.calls[name] < _CALLS:
            self.rows[name] += len(first)
        self._record_inputs(module, positional)

    def _after_forward(self, module: nn.Module, inputs: Any, keywords: Mapping[str, Any], output: Any) -> None:
        if self._backwards.reads_factors:  # called although `_before_forward` has raised an error
            return
        self._depth = max(0, self._depth - 1)
        if self._depth or self._backwards.is_running:
            return
        if not any(map(batches_in, inputs if isinstance(inputs, tuple) else ())):
            self._record_inputs(module, keywords.values())  # torch passes them only to hooks after the forward pass
        if next(module.parameters(), None) is None:
            return
        for tensor in tensors_in(output):
            if has_rows(tensor) and len(self._outputs) < _OUTPUTS:
                self._outputs.update(digests_of_rows(tensor))

    def _record_inputs(self, module: nn.Module, inputs: Iterable[Any]) -> None:
        """Publishes the rows of the first input that has rows, of integers only if no input has rows of floats.

        If this input is a container, such as a batch of images and conditions, a row consists of the rows of all its
        tensors, because ranks can have equal conditions for different images.
        """
        name, network = self.names.path(module) + WITHOUT_GRADIENT * (not self._has_gradient), unwrapped(module)
        if self.calls[name] >= _CALLS or (hasattr(network, "training_step") and not network.training):
            return  # a LightningModule whose forward pass validates
        batches = [*filter(None, map(batches_in, inputs))]
        first = next((each for each in batches if any(map(torch.is_floating_point, each))), [*batches, []][0])
        digests = [[*digests_of_rows(tensor)] for tensor in first]
        rows = (
            "".join(each for each in row if each not in self._outputs) for row in zip_longest(*digests, fillvalue="")
        )
        data = [row for row in rows if row]
        if data:
            self.publish(f"call/{name}/{self.calls[name]}", Call(name, data))
            self.calls[name] += 1

    def _find_outside(self, module: nn.Module) -> None:
        """Names and follows a network that the forward pass of another network calls without containing it."""
        first, caller = next(module.parameters(), None), self.names.network(self._outermost)
        if self.names.knows(module) or first is None or self.names.of_parameter(first) or caller is None:
            return
        if not any(part is module for part in caller.modules()):
            name, _ = self.names.of_module(module)
            self._outside.add(name)
            network = self.names.network(name)
            assert network is not None, "it is called"
            self._backwards.follow(network)

    # ---- optimizer steps

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Records the gradients of a step, after its closure returns if there is one."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._record(optimizer)
            return None
        if self._is_watched(optimizer):
            self._watch()
        record = self._harmless(self._record)
        is_recorded = False

        def watched_closure() -> Any:
            nonlocal is_recorded
            loss = closure()
            if not is_recorded:  # optimizers such as LBFGS call the closure several times per step
                is_recorded = True
                record(optimizer)
            return loss

        if "closure" in kwargs:
            return args, kwargs | {"closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def _is_watched(self, optimizer: Optimizer) -> bool:
        names = (name for name, known in self.names.optimizers() if known is optimizer)
        return self.numbers[next(names, "")] < self.steps

    def _record(self, optimizer: Optimizer) -> None:
        """Records the weights and gradients before an optimizer step."""
        name = self.names.of_optimizer(optimizer)
        self.numbers[name] += 1
        if self.numbers[name] > self.steps:
            self.count(self.numbers)
            return
        self._watch()
        own = parameters_of(optimizer)
        shapes = [type(optimizer).__name__, *(str(tuple(parameter.shape)) for parameter in own)]
        paths = [self.names.of_parameter(parameter).partition(" of ")[0] for parameter in own]
        self.event(StepStart(name, digest_of(shapes), digest_of(paths)))
        self.count(self.numbers)
        if self.numbers[name] == 1:
            self._find_copies({id(parameter) for parameter in own})
        weights = [self._weight(parameter, own, name) for parameter in own]
        passes = sorted({number for weight in weights for number in weight.backwards})
        found_inf = getattr(optimizer, "found_inf", None)  # set by a gradient scaler on a fused optimizer
        self._pending[id(optimizer)] = Step(
            name,
            self.numbers[name],
            line_of_script(),
            weights,
            backward_line=self._backwards.line(passes),
            in_lightning=any(map(self._is_in_lightning, own)),
            synchronized=self._backwards.synchronized(passes),
            factors=self._backwards.factors(passes),
            scaled=found_inf is not None or called_by_scaler(),
            overflows=found_inf is not None and bool(found_inf),
            options=_options(optimizer),
        )

    def _weight(self, parameter: Tensor, own: list[Tensor], optimizer: str) -> Weight:
        known = self.names.of_parameter(parameter)
        name = known or f"of shape {tuple(parameter.shape)}"
        if is_sharded(parameter):
            return Weight(name, skipped="is sharded")
        if not known and not isinstance(parameter, nn.Parameter):  # DeepSpeed's shards are such tensors
            return Weight(name, skipped="is a tensor of the optimizer, and no parameter of a network")
        outside = not known or self.names.network_of(parameter) in self._outside
        weight, gradient = Weight(name, before=projection(parameter), outside=outside), parameter.grad
        if gradient is None or is_sharded(gradient):
            return weight
        self._with_gradient.add(id(parameter))
        weight.gradient, weight.norm = projection(gradient), float(gradient.detach().double().norm())
        record = self._backwards.contributions(parameter)
        if record is not None:
            weight.local, weight.backwards = record.local, [*record.backwards]
            weight.mixed = self._backwards.is_mixed(record.backwards, {id(each) for each in own}, optimizer)
        return weight

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        name = self.names.of_optimizer(optimizer)
        self._backwards.step(name)
        step = self._pending.pop(id(optimizer), None)
        if step is None:
            return
        for parameter, weight in zip(parameters_of(optimizer), step.weights, strict=True):
            if not weight.skipped:
                weight.after = projection(parameter)
        step.random_state = random_state()
        self.publish(f"step/{name}/{step.number}", step)
        total, rests = sum(self.numbers.values()), all(number >= self.steps for number in self.numbers.values())
        if rests or total & (total - 1) == 0:  # also at powers of two, because networks might be freed early
            self.states.append(f"state/{total}")
            self.publish(self.states[-1], self._state())
        if rests:
            self._rest()

    def _is_in_lightning(self, parameter: Tensor) -> bool:
        """Returns whether a called LightningModule contains a parameter."""
        network = self.names.network(self.names.network_of(parameter))
        return network is not None and hasattr(unwrapped(network), "manual_backward")

    # ---- the networks

    def _state(self) -> State:
        """Returns the state of the networks that still exist."""
        stepped = {id(weight) for _, optimizer in self.names.optimizers() for weight in parameters_of(optimizer)}
        state = State()
        for name, module in self.names.networks():
            network = unwrapped(module)
            # a frozen network in evaluation mode, such as LPIPS, has dropout layers that draw nothing
            if any(isinstance(layer, _DROPOUTS) and layer.p and layer.training for layer in network.modules()):
                state.draws.append(name)
            for path, layer in network.named_modules():
                for short, buffer in layer.named_buffers(recurse=False):
                    full = f"{path}.{short} of {name}".lstrip(".")
                    if not is_sharded(buffer):
                        state.buffers[full] = digest(buffer)
                        if is_whole(buffer):
                            state.whole.append(full)
                    if isinstance(layer, NormBase):
                        state.running.append(full)
            for path, parameter in network.named_parameters():
                if is_sharded(parameter) or not self._backwards.follows(parameter) or id(parameter) not in stepped:
                    continue
                if self._backwards.contributions(parameter) is None and id(parameter) not in self._with_gradient:
                    state.never.append(f"{path} of {name}")
            rest = [own for own in network.parameters() if id(own) not in stepped]
            if rest and not any(own.is_meta or is_sharded(own) for own in rest):
                state.frozen[name] = digest_of(map(digest, rest))
        for name, network in self._averages(stepped):
            state.frozen.pop(name, None)
            state.averages[name] = digest_of(map(digest, network.parameters()))
            if network in self._copies:
                state.copies.append(name)
        return state

    def _find_copies(self, stepped: set[int]) -> None:
        """Finds the averages that equal a network before its first step."""
        trained = [(type(each), digest_of(map(digest, each.parameters()))) for each in self._trained(stepped)]
        for _, network in self._averages(stepped):
            if (type(network), digest_of(map(digest, network.parameters()))) in trained:
                self._copies.add(network)

    def _trained(self, stepped: set[int]) -> list[nn.Module]:
        """Returns networks and child modules that contain stepped parameters."""
        known = [unwrapped(module) for _, module in self.names.networks()]
        known += [
            child for each in known for child in each.children() if not type(child).__module__.startswith("torch.")
        ]
        return [each for each in known if any(id(parameter) in stepped for parameter in each.parameters())]

    def _averages(self, stepped: set[int]) -> Iterator[tuple[str, nn.Module]]:
        """Yields the networks that no optimizer steps, if a stepped network or its child has the same class."""
        kinds, numbers = {type(network) for network in self._trained(stepped)}, Counter[str]()
        found: list[nn.Module] = []
        for network in gc.get_objects():
            try:
                is_network = type(network) in kinds
            except Exception:  # some objects raise an error when they are inspected
                continue
            if is_network and not any(id(parameter) in stepped for parameter in network.parameters()):
                found.append(network)
        parts = {id(part) for network in found for part in network.modules() if part is not network}
        for network in (each for each in found if id(each) not in parts):
            kind = type(network).__name__
            numbers[kind] += 1
            yield self.names.of_uncalled(network) or f"copy {numbers[kind]} of {kind}", network


def _options(optimizer: Optimizer) -> dict[str, list[float]]:
    """Returns the numbers in the parameter groups, such as learning rates, by name."""
    options: dict[str, list[float]] = {}
    for group in optimizer.param_groups:
        for name, value in group.items():
            values = enumerate(value) if name != "params" and isinstance(value, tuple) else [("", value)]
            for index, number in values:
                is_scalar = isinstance(number, Tensor) and number.numel() == 1
                if is_scalar or isinstance(number, int | float):
                    options.setdefault(f"{name}[{index}]" if index != "" else name, []).append(float(number))
    return options
