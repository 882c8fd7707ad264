"""Records the first optimizer steps of this rank with torch's hooks. The hooks change no values.

The hooks of optimizer steps exist until the check ends. All other hooks exist only while an optimizer is recorded. The
hooks, and what they record:

    before each forward pass of a module    names of networks and parameters, digests of their inputs
    each call of torch.autograd.backward    numbers that multiply the loss
    each gradient of a parameter            contributions of this rank's backward passes
    before and after each optimizer step    gradients, weights, and the line of the script
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from itertools import islice, zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from lit_gans.check.records import Call, Factor, State, Step, StepStart, Weight
from lit_gans.common._compat.torch import NormBase, loss_factors

_CALLS = 40  # maximum number of recorded forward passes per network
_ROWS = 128  # maximum number of recorded rows of an input
_FEWEST = 4  # minimum size of a row: smaller rows, such as labels, are often equal on two ranks by chance
_TENSORS = 16  # maximum number of recorded tensors of an input, such as a batch that is a list
_OUTPUTS = 100_000  # maximum number of recorded rows of outputs
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")} | {str(Path(__file__).parents[1])}
)
_LONGEST = 1000  # maximum length of a list that is searched for a network
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class _Gradient:
    """Sum of the contributions of backward passes to a parameter's gradient since the gradient was last cleared."""

    def __init__(self) -> None:
        self.local = 0.0
        self.backwards: list[int] = []


class _Recomputed(BaseException):
    """Raised if reading a factor of the loss would recompute a checkpointed forward pass."""


class Recorder:
    """Records the first steps of each optimizer.

    Args:
        steps: number of steps of each optimizer that are recorded.
        publish: function that receives the name of each record, and the record.
        event: function that is called before each recorded step, with the start of the step.
    """

    def __init__(
        self, steps: int, publish: Callable[[str, Step | Call | State], None], event: Callable[[StepStart], None]
    ) -> None:
        self.steps, self.publish, self.event = steps, publish, event
        self.numbers: dict[str, int] = {}  # number of steps of each optimizer so far
        self.states: list[str] = []  # names of the published states
        self.error = ""  # error that ended the recording; empty if there was none
        self._roots: dict[str, weakref.ref[nn.Module]] = {}  # outermost modules, by the name of the network
        self._names: dict[int, tuple[str, str]] = {}  # network that contains a module, and the module's path, by id
        self._parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self._gradients: dict[int, _Gradient] = {}
        self._with_gradient: set[int] = set()  # ids of the parameters that have had a gradient at a step
        self._optimizers: dict[int, tuple[weakref.ref[Optimizer], str]] = {}
        self.calls: Counter[str] = Counter()  # number of recorded inputs of each network
        self.rows: Counter[str] = Counter()  # total number of rows in the inputs of each network
        self._outputs: set[str] = set()  # digests of the rows of all outputs
        self._outermost = ""  # network whose forward pass calls the current modules
        self._outside: set[str] = set()  # networks that only the forward pass of another network calls from outside
        self._copies = weakref.WeakSet[nn.Module]()  # averages that were equal to a network before its first step
        self._depth = 0
        self._backward, self._in_backward, self._reads_factors = 0, False, False
        self._touched: dict[int, set[int]] = {}  # ids of the parameters that each backward pass has reached
        self._synchronizes: dict[str, bool] = {}  # whether the wrapper of a network synchronizes the next backward pass
        self._synchronized: dict[int, bool] = {}  # whether each backward pass was synchronized
        self._lines: dict[int, str] = {}  # line of the script that runs each backward pass
        self._factors: dict[int, list[Factor]] = {}  # numbers that multiply the loss of each backward pass
        self._autograd_backward: Callable[..., None] | None = None  # torch's function, while it is replaced
        self._stepped_at: dict[str, list[int]] = {}  # number of backward passes before each step
        self._pending: dict[int, Step] = {}
        self._handles: list[RemovableHandle] = []
        self._of_parameters: dict[int, RemovableHandle] = {}
        self._of_optimizers = [
            register_optimizer_step_pre_hook(self._harmless(self._before_step)),
            register_optimizer_step_post_hook(self._harmless(self._after_step)),
        ]
        self._watch()

    # ---- hooks

    def _watch(self) -> None:
        """Registers the hooks of forward passes."""
        if not self._handles:
            self._handles = [
                register_module_forward_pre_hook(self._harmless(self._before_forward)),
                register_module_forward_hook(self._harmless(self._after_forward), with_kwargs=True, always_call=True),
            ]
            self._depth = 0
            self._autograd_backward = torch.autograd.backward
            torch.autograd.backward = self._watched(self._autograd_backward)

    def _rest(self) -> None:
        """Removes all hooks except the hooks of optimizers, which count steps and detect new optimizers."""
        for handle in (*self._handles, *self._of_parameters.values()):
            handle.remove()
        self._handles, self._of_parameters = [], {}
        if self._autograd_backward is not None:
            torch.autograd.backward, self._autograd_backward = self._autograd_backward, None

    def _harmless(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a hook, so that its errors end the recording instead of the script."""

        def harmless(*given: Any) -> Any:
            if self.error:
                return None
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
        if self._reads_factors:
            raise _Recomputed
        self._depth += 1
        if self._in_backward:
            return
        if self._depth > 1:
            self._find_outside(module)
            return
        self._outermost, _ = self._named(module)
        self._outside.discard(self._outermost)
        name = self._path(module)
        self._follow(module)
        synchronizes = getattr(module, "require_backward_grad_sync", None)
        if synchronizes is not None:
            self._synchronizes[self._outermost] = synchronizes
        positional = inputs if isinstance(inputs, tuple) else ()
        first = next((each for each in positional if isinstance(each, Tensor)), None)
        if first is not None and first.dim() and self.calls[name] < _CALLS:
            self.rows[name] += len(first)
        self._record_inputs(module, positional)

    def _after_forward(self, module: nn.Module, inputs: Any, keywords: Mapping[str, Any], output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth or self._in_backward:
            return
        if not any(map(_batch, inputs if isinstance(inputs, tuple) else ())):
            self._record_inputs(module, keywords.values())  # torch passes them only to hooks after the forward pass
        if next(module.parameters(), None) is None:
            return
        for tensor in _tensors(output):
            if _has_rows(tensor) and len(self._outputs) < _OUTPUTS:
                self._outputs.update(_digests(tensor))

    def _record_inputs(self, module: nn.Module, inputs: Iterable[Any]) -> None:
        """Publishes the rows of the first input that has rows.

        If this input is a container, such as a batch of images and conditions, a row consists of the rows of all its
        tensors, because ranks can have equal conditions for different images.
        """
        name, network = self._path(module), unwrapped(module)
        if self.calls[name] >= _CALLS or (hasattr(network, "training_step") and not network.training):
            return  # a LightningModule whose forward pass validates
        digests = [[*_digests(tensor)] for tensor in next(filter(None, map(_batch, inputs)), [])]
        rows = (
            "".join(each for each in row if each not in self._outputs) for row in zip_longest(*digests, fillvalue="")
        )
        data = [row for row in rows if row]
        if data:
            self.publish(f"call/{name}/{self.calls[name]}", Call(name, data))
            self.calls[name] += 1

    def _find_outside(self, module: nn.Module) -> None:
        """Names and follows a network that the forward pass of another network calls without containing it."""
        first, caller = next(module.parameters(), None), self._roots[self._outermost]()
        if id(module) in self._names or first is None or self.name_of_parameter(first) or caller is None:
            return
        if not any(part is module for part in caller.modules()):
            name, _ = self._named(module)
            self._outside.add(name)
            network = self._roots[name]()
            assert network is not None, "it is called"
            self._follow(network)

    def _path(self, module: nn.Module) -> str:
        """Returns the name of a module: its path within its network, and the name of the network."""
        network, path = self._named(module)
        return f"{path} of {network}" if path else network

    def _named(self, module: nn.Module) -> tuple[str, str]:
        """Returns the name of the network that contains a module, and the path of the module within this network.

        The name consists of a variable of the script and the network's class. The module can be the network itself.
        """
        known = self._names.get(id(module))
        if known is not None and self._roots[known[0]]() is not None:
            return known
        variable, module_of_variable = _variable(module) or _variable(unwrapped(module)) or (None, module)
        network = unwrapped(module_of_variable)
        kind = type(network).__name__
        name = base = kind if variable is None else f"{variable} ({kind})"
        number = 1
        while name in self._roots and self._roots[name]() is not None:
            number += 1
            name = f"{base} {number}"
        self._roots[name] = weakref.ref(module_of_variable)
        names = {id(module_of_variable): (name, "")}
        names |= {id(own): (name, path) for path, own in network.named_modules()}
        self._names |= {id(module): names[id(unwrapped(module))]} | names
        for path, parameter in network.named_parameters():
            self._parameters[id(parameter)] = weakref.ref(parameter), f"{path} of {name}"
        return self._names[id(module)]

    def _follow(self, module: nn.Module) -> None:
        """Registers a hook on those parameters of a module that require a gradient."""
        for parameter in module.parameters():
            if parameter.requires_grad and id(parameter) not in self._of_parameters:
                hook = self._harmless(self._contribution_to(parameter))
                self._of_parameters[id(parameter)] = parameter.register_hook(hook)

    def _contribution_to(self, parameter: Tensor) -> Callable[[Tensor], None]:
        key, reference = id(parameter), weakref.ref(parameter)

        def contributed(gradient: Tensor) -> None:
            if not self._in_backward:  # called by torch.autograd.grad, which does not accumulate gradients
                return
            current = reference()
            record = self._gradients.get(key)
            if record is None or current is None or current.grad is None or not _any(current.grad):
                record = self._gradients[key] = _Gradient()
            record.local += _projection(gradient)
            if self._backward not in record.backwards:
                record.backwards.append(self._backward)
            self._touched.setdefault(self._backward, set()).add(key)
            network = self._parameters[key][1].partition(" of ")[2] if key in self._parameters else ""
            if network in self._synchronizes:
                self._synchronized[self._backward] = self._synchronizes[network]

        return contributed

    # ---- backward passes

    def _watched(self, backward: Callable[..., None]) -> Callable[..., None]:
        """Wraps `torch.autograd.backward`, which `Tensor.backward` calls, to record the factors of the loss."""

        @wraps(backward)
        def watched(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._in_backward:  # activation checkpointing runs a nested backward pass
                return backward(tensors, *args, **kwargs)
            self._harmless(self._read_factors)(tensors)
            self._lines[self._backward] = line_of_script()
            self._in_backward = True
            try:
                return backward(tensors, *args, **kwargs)
            finally:
                self._in_backward = False
                self._backward += 1

        return watched

    def _read_factors(self, tensors: Tensor | Sequence[Tensor]) -> None:
        losses = [tensors] if isinstance(tensors, Tensor) else [*tensors]
        self._reads_factors, depth = True, self._depth
        try:
            self._factors[self._backward] = [Factor(*each) for loss in losses for each in loss_factors(loss)]
        except _Recomputed:  # a checkpointed function computes the loss, so its factors stay unknown
            pass
        finally:
            self._reads_factors, self._depth = False, depth

    # ---- optimizer steps

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Records the gradients of a step. If a closure computes them, records them after the closure returns."""
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
        reference, name = self._optimizers.get(id(optimizer), (None, ""))
        return reference is None or reference() is not optimizer or self.numbers[name] < self.steps

    def _record(self, optimizer: Optimizer) -> None:
        """Records the weights and gradients before an optimizer step."""
        name = self.name_of(optimizer)
        self.numbers[name] += 1
        if self.numbers[name] > self.steps:
            return
        self._watch()
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        shapes = [type(optimizer).__name__, *(str(tuple(parameter.shape)) for parameter in own)]
        paths = [self.name_of_parameter(parameter).partition(" of ")[0] for parameter in own]
        self.event(StepStart(name, _digest_of(shapes), _digest_of(paths)))
        if self.numbers[name] == 1:
            self._find_copies({id(parameter) for parameter in own})
        weights = [self._weight(parameter, own, name) for parameter in own]
        passes = sorted({number for weight in weights for number in weight.backwards})
        synchronized = [self._synchronized[number] for number in passes if number in self._synchronized]
        factors = [factor for number in passes for factor in self._factors.get(number, [])]
        found_inf = getattr(optimizer, "found_inf", None)  # set by a gradient scaler on a fused optimizer
        self._pending[id(optimizer)] = Step(
            name,
            self.numbers[name],
            line_of_script(),
            weights,
            backward_line=next((self._lines[number] for number in reversed(passes) if number in self._lines), ""),
            in_lightning=any(map(self._is_in_lightning, own)),
            synchronized=synchronized,
            factors=factors,
            scaled=found_inf is not None or _called_by_scaler(),
            overflows=found_inf is not None and bool(found_inf),
            options=_options(optimizer),
        )

    def _weight(self, parameter: Tensor, own: list[Tensor], optimizer: str) -> Weight:
        known = self.name_of_parameter(parameter)
        name = known or f"of shape {tuple(parameter.shape)}"
        if is_sharded(parameter):
            return Weight(name, skipped="is sharded")
        if not known and not isinstance(parameter, nn.Parameter):  # DeepSpeed's shards are such tensors
            return Weight(name, skipped="is a tensor of the optimizer, and no parameter of a network")
        outside = not known or known.partition(" of ")[2] in self._outside
        weight, gradient = Weight(name, before=_projection(parameter), outside=outside), parameter.grad
        if gradient is None or is_sharded(gradient):
            return weight
        self._with_gradient.add(id(parameter))
        weight.gradient, weight.norm = _projection(gradient), float(gradient.detach().double().norm())
        record = self._gradients.get(id(parameter))
        if record is not None:
            weight.local, weight.backwards = record.local, [*record.backwards]
            weight.mixed = self._is_mixed(record.backwards, {id(each) for each in own}, optimizer)
        return weight

    def _is_mixed(self, backwards: list[int], own: set[int], optimizer: str) -> bool:
        """Returns whether a gradient accumulates backward passes from before and from after an optimizer step.

        Steps of the parameter's own optimizer count. A step of another optimizer counts only if the earlier backward
        pass also reached parameters of this other optimizer.
        """
        for other, steps in self._stepped_at.items():
            for step in steps:
                earlier = [number for number in backwards if number < step]
                if not earlier or backwards[-1] < step:
                    continue
                theirs = {id(each) for each in self._weights_of(other)} - own
                if other == optimizer or any(self._touched[number] & theirs for number in earlier):
                    return True
        return False

    def _weights_of(self, name: str) -> Iterator[Tensor]:
        for reference, known in self._optimizers.values():
            optimizer = reference()
            if known == name and optimizer is not None:
                yield from (parameter for group in optimizer.param_groups for parameter in group["params"])

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        name = self.name_of(optimizer)
        if self._handles:  # the list stops growing after the recorded steps, because a script may run for days
            self._stepped_at.setdefault(name, []).append(self._backward)
        step = self._pending.pop(id(optimizer), None)
        if step is None:
            return
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        for parameter, weight in zip(parameters, step.weights, strict=True):
            if not weight.skipped:
                weight.after = _projection(parameter)
        step.random_state = _random_state()
        self.publish(f"step/{name}/{step.number}", step)
        total, rests = sum(self.numbers.values()), all(number >= self.steps for number in self.numbers.values())
        if rests or total & (total - 1) == 0:  # also at powers of two, because networks might be freed early
            self.states.append(f"state/{total}")
            self.publish(self.states[-1], self._state())
        if rests:
            self._rest()

    def name_of_parameter(self, parameter: Tensor) -> str:
        """Returns the name of a parameter and its network, or an empty string if the network was not called."""
        reference, name = self._parameters.get(id(parameter), (None, ""))
        return name if reference is not None and reference() is parameter else ""

    def _is_in_lightning(self, parameter: Tensor) -> bool:
        """Returns whether a LightningModule contains a parameter, and is called as a network."""
        reference = self._roots.get(self.name_of_parameter(parameter).partition(" of ")[2])
        network = None if reference is None else reference()
        return network is not None and hasattr(unwrapped(network), "manual_backward")

    def name_of(self, optimizer: Optimizer) -> str:
        """Returns the name of an optimizer: its class and the networks whose parameters it steps."""
        reference, name = self._optimizers.get(id(optimizer), (None, ""))
        if reference is not None and reference() is optimizer:
            return name
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        known = [self._parameters[id(each)][1] for each in parameters if id(each) in self._parameters]
        networks = dict.fromkeys(each.partition(" of ")[2] for each in known)
        parts = [_part(network, known, [own for _, own in self._parameters.values()]) for network in networks]
        name = base = f"{type(optimizer).__name__} of {', '.join(parts) or 'unknown parameters'}"
        number = 1
        while name in self.numbers:
            number += 1
            name = f"{base} {number}"
        self._optimizers[id(optimizer)] = weakref.ref(optimizer), name
        self.numbers[name] = 0
        return name

    # ---- the networks

    def _state(self) -> State:
        """Returns the state of the networks that still exist."""
        stepped = {id(weight) for name in self.numbers for weight in self._weights_of(name)}
        state = State()
        for name, reference in [*self._roots.items()]:
            module = reference()
            if module is None:
                continue
            network = unwrapped(module)
            # a frozen network in evaluation mode, such as LPIPS, has dropout layers that draw nothing
            if any(isinstance(layer, _DROPOUTS) and layer.p and layer.training for layer in network.modules()):
                state.draws.append(name)
            for path, layer in network.named_modules():
                for short, buffer in layer.named_buffers(recurse=False):
                    full = f"{path}.{short} of {name}".lstrip(".")
                    if not is_sharded(buffer):
                        state.buffers[full] = _digest(buffer)
                        if _is_whole(buffer):
                            state.whole.append(full)
                    if isinstance(layer, NormBase):
                        state.running.append(full)
            for path, parameter in network.named_parameters():
                followed = id(parameter) in self._of_parameters  # the parameter has required a gradient
                if is_sharded(parameter) or not followed:
                    continue
                if id(parameter) in stepped and id(parameter) not in {*self._gradients, *self._with_gradient}:
                    state.never.append(f"{path} of {name}")
            rest = [own for own in network.parameters() if id(own) not in stepped]
            if rest and not any(own.is_meta or is_sharded(own) for own in rest):
                state.frozen[name] = _digest_of(map(_digest, rest))
        for name, network in self._averages(stepped):
            state.frozen.pop(name, None)
            state.averages[name] = _digest_of(map(_digest, network.parameters()))
            if network in self._copies:
                state.copies.append(name)
        return state

    def _find_copies(self, stepped: set[int]) -> None:
        """Finds the averages that are equal to a network before that network's first step."""
        trained = [(type(each), _digest_of(map(_digest, each.parameters()))) for each in self._trained(stepped)]
        for _, network in self._averages(stepped):
            if (type(network), _digest_of(map(_digest, network.parameters()))) in trained:
                self._copies.add(network)

    def _trained(self, stepped: set[int]) -> list[nn.Module]:
        """Returns the networks and their child modules that contain stepped parameters."""
        known = [unwrapped(module) for module in (ref() for ref in self._roots.values()) if module is not None]
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
            name, path = self._names.get(id(network), ("", ""))
            place = None if name else _variable(network)
            if place is not None:
                whole = unwrapped(place[1])
                name = f"{place[0]} ({type(whole).__name__})"
                path = next((path for path, part in whole.named_modules() if part is network), "")
            yield (f"{path} of {name}" if path else name) or f"copy {numbers[kind]} of {kind}", network


def _options(optimizer: Optimizer) -> dict[str, list[float]]:
    """Returns the numbers in the parameter groups, such as the learning rate, by name, with one number per group."""
    options: dict[str, list[float]] = {}
    for group in optimizer.param_groups:
        for name, value in group.items():
            values = enumerate(value) if name != "params" and isinstance(value, tuple) else [("", value)]
            for index, number in values:
                is_scalar = isinstance(number, Tensor) and number.numel() == 1
                if is_scalar or isinstance(number, int | float):
                    options.setdefault(f"{name}[{index}]" if index != "" else name, []).append(float(number))
    return options


def _part(network: str, stepped: Sequence[str], known: Sequence[str]) -> str:
    """Returns the name of a network. If only some parameters are stepped, prepends the names of their child modules."""
    stepped, every = ([each for each in names if each.endswith(f" of {network}")] for names in (stepped, known))
    children = dict.fromkeys(each.partition(".")[0] for each in stepped)
    return network if len(stepped) == len(every) else f"{', '.join(children)} of {network}"


def unwrapped(module: nn.Module) -> nn.Module:
    """Removes wrappers such as DistributedDataParallel, and returns the inner network."""
    while type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule") or (
        type(module).__module__.startswith(("deepspeed", "lightning.fabric.wrappers")) and hasattr(module, "module")
    ):
        inner = getattr(module, "_orig_mod", None) or module.module
        if not isinstance(inner, nn.Module):
            break
        module = inner
    return module


def is_sharded(tensor: Tensor) -> bool:
    """Returns whether this rank holds only a shard of a tensor, or the tensor is part of a flat parameter."""
    placements = getattr(tensor, "placements", None)
    if placements is not None:
        return not all(placement.is_replicate() for placement in placements)
    return type(tensor).__name__ == "FlatParameter" or hasattr(tensor, "ds_id")


def _dense(tensor: Tensor) -> Tensor:
    """Returns the detached values of a tensor, which can be sparse or a replicated DTensor, as a dense tensor."""
    values = tensor.detach()
    values = values.to_local() if hasattr(values, "to_local") else values
    return values if values.layout == torch.strided else values.to_dense()


def _projection(tensor: Tensor) -> float:
    """Projects a tensor onto a fixed direction, which depends only on the number of elements."""
    values = _dense(tensor).double().flatten()
    direction = torch.arange(1, values.numel() + 1, device=values.device, dtype=torch.double).mul_(0.7).cos_()
    return float(values @ direction)


def _any(gradient: Tensor) -> bool:
    return bool(_dense(gradient).any())


def _digest(tensor: Tensor) -> str:
    # copies the values, because a NumPy view would keep FSDP from freeing the memory
    values = _dense(tensor).cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    return hashlib.blake2b(values.view(torch.uint8).numpy().data if values.numel() else b"", digest_size=8).hexdigest()


def _digest_of(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _is_whole(tensor: Tensor) -> bool:
    """Returns whether all values of a tensor are integers."""
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    values = _dense(tensor)
    return bool((values == values.round()).all())


def _has_rows(value: Any) -> TypeGuard[Tensor]:
    """Returns whether a value is a batch of images or latents."""
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dim() > 1
        and len(value) > 0
        and value.shape[1:].numel() >= _FEWEST
        and not value.is_meta
        and not is_sharded(value)
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a value that can be a list, tuple, dict or dataclass, or contain them."""
    if isinstance(value, Tensor):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value):
        inner = (getattr(value, each.name, None) for each in fields(value))
    for each in inner:
        yield from _tensors(each)


def _batch(value: Any) -> list[Tensor]:
    """Returns the first tensors in a value that are batches of images or latents."""
    return [*islice(filter(_has_rows, _tensors(value)), _TENSORS)]


def _digests(images: Tensor) -> Iterator[str]:
    for row in images[:_ROWS].detach():
        yield _digest(row.reshape(-1))


def _random_state() -> str:
    state = torch.get_rng_state()
    if torch.cuda.is_initialized():
        state = torch.cat([state, torch.cuda.get_rng_state()])
    return hashlib.blake2b(state.numpy().data, digest_size=8).hexdigest()


def _frames() -> Iterator[FrameType]:
    """Yields the stack frames of the script, innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*_LIBRARIES, "<")):
            yield frame
        frame = frame.f_back


def line_of_script() -> str:
    """Returns the file and line of the innermost frame of the script."""
    frame = next(_frames(), None)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _called_by_scaler() -> bool:
    """Returns whether a gradient scaler of torch called the current step."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == torch.amp.GradScaler.__module__:
            return True
        frame = frame.f_back
    return False


def _variable(module: nn.Module) -> tuple[str, nn.Module] | None:
    """Returns the name and value of the script's variable that refers to a module or contains the module.

    Attributes of `self` count as variables. The outermost frame that has such a variable is used. In inner frames,
    names are often arguments, which refer to a different network in each call. If a list contains several networks of
    the same class, the name is the position in the list. The name of a loop variable would be equal for all networks in
    the list.
    """
    for frame in reversed([*_frames()]):
        own = frame.f_locals.get("self")
        attributes = {**vars(own), **getattr(own, "_modules", {})} if hasattr(own, "__dict__") else {}
        attributes.pop("_modules", None)
        scopes = frame.f_locals, attributes, frame.f_globals
        for names in scopes:
            plain = next((str(name) for name, value in names.items() if value is module and name != "self"), None)
            in_list = next(filter(None, (_position(str(name), value, module) for name, value in names.items())), None)
            if name := in_list or plain:
                return name, module
        around = [
            each for names in scopes for each in names.items() if each[0] != "self" and _contains(each[1], module)
        ]
        if around:
            name, value = min(around, key=lambda each: len([*each[1].modules()]))
            return str(name), value
        alone = (_position(str(name), value, module, 1) for names in scopes for name, value in names.items())
        if name := next(filter(None, alone), None):
            return name, module
    return None


def _contains(value: Any, module: nn.Module) -> bool:
    """Returns whether a value is a network that contains a module. The script might call only methods of this network.

    A LightningModule does not count as a network, because it contains all networks.
    """
    if not isinstance(value, nn.Module) or hasattr(unwrapped(value), "training_step"):
        return False
    return any(part is module for part in value.modules())


def _position(name: str, networks: Any, module: nn.Module, fewest: int = 2) -> str | None:
    """Returns a module's position in a list or dict as a name, if at least `fewest` items have the module's class."""
    if not isinstance(networks, list | tuple | dict | nn.ModuleList | nn.ModuleDict) or len(networks) > _LONGEST:
        return None
    items = [*(networks.items() if isinstance(networks, Mapping | nn.ModuleDict) else enumerate(networks))]
    alike = [(key, value) for key, value in items if type(value) is type(module)]
    return next((f"{name}[{key!r}]" for key, value in alike if value is module and len(alike) >= fewest), None)
