"""Records the backward passes of this rank: the factors of the loss, and what each contributes to gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.check.names import Names, line_of_script, parameters_of
from lit_gans.check.records import Factor
from lit_gans.check.tensors import any_nonzero, projection
from lit_gans.common._compat.torch import loss_factors


class Contributions:
    """Sum of the contributions of backward passes to a parameter's gradient since the gradient was last cleared.

    Attributes:
        local: projection of the sum, before a wrapper averages it over the ranks.
        backwards: numbers of the backward passes.
    """

    def __init__(self) -> None:
        self.local = 0.0
        self.backwards: list[int] = []


class Recomputed(BaseException):
    """Raised if reading a factor of the loss would recompute a checkpointed forward pass."""


class Backwards:
    """Records backward passes between `watch` and `rest`.

    Args:
        names: names of the networks, parameters and optimizers.
        harmless: wraps a hook, so that its errors do not end the script.

    Attributes:
        is_running: whether a backward pass is running.
        reads_factors: whether the factors of a loss are being read. A forward pass that starts must raise `Recomputed`.
        synchronizes: whether the wrapper of a network averages the gradients of the next backward pass, by the name of
            the network.
    """

    def __init__(self, names: Names, harmless: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._names, self._harmless = names, harmless
        self.is_running = self.reads_factors = False
        self.synchronizes: dict[str, bool] = {}
        self._number = 0  # number of backward passes so far
        self._contributions: dict[int, Contributions] = {}  # by the id of the parameter
        self._touched: dict[int, set[int]] = {}  # ids of the parameters that each backward pass has reached
        self._synchronized: dict[int, bool] = {}  # whether each backward pass was synchronized
        self._lines: dict[int, str] = {}  # line of the script that runs each backward pass
        self._factors: dict[int, list[Factor]] = {}  # numbers that multiply the loss of each backward pass
        self._stepped_at: dict[str, list[int]] = {}  # number of backward passes before each step of an optimizer
        self._handles: dict[int, RemovableHandle] = {}  # hooks of the followed parameters
        self._original: Callable[..., None] | None = None  # `torch.autograd.backward`, while it is replaced

    def watch(self) -> None:
        """Replaces `torch.autograd.backward`."""
        if self._original is None:
            self._original = torch.autograd.backward
            torch.autograd.backward = self._watched(self._original)

    def rest(self) -> None:
        """Restores `torch.autograd.backward`, and removes the hooks of parameters."""
        for handle in self._handles.values():
            handle.remove()
        self._handles = {}
        if self._original is not None:
            torch.autograd.backward, self._original = self._original, None

    def follow(self, module: nn.Module) -> None:
        """Registers a hook on those parameters of a module that require a gradient."""
        for parameter in module.parameters():
            if parameter.requires_grad and id(parameter) not in self._handles:
                hook = self._harmless(self._contribution_to(parameter))
                self._handles[id(parameter)] = parameter.register_hook(hook)

    def follows(self, parameter: Tensor) -> bool:
        """Returns whether a parameter is followed: it has required a gradient."""
        return id(parameter) in self._handles

    def contributions(self, parameter: Tensor) -> Contributions | None:
        """Returns the contributions to a parameter's gradient, or None if no backward pass has reached it."""
        return self._contributions.get(id(parameter))

    def step(self, optimizer: str) -> None:
        """Records a step of an optimizer."""
        if self._original is not None:  # the list stops growing after the recorded steps: a script may run for days
            self._stepped_at.setdefault(optimizer, []).append(self._number)

    # ---- what a step needs of the backward passes that contributed to its gradients

    def is_mixed(self, backwards: Sequence[int], own: set[int], optimizer: str) -> bool:
        """Returns whether a gradient accumulates backward passes from before and from after an optimizer step.

        Steps of the parameter's own optimizer count. A step of another optimizer counts only if the earlier backward
        pass also reached parameters of this other optimizer.

        Args:
            backwards: numbers of the backward passes of a gradient.
            own: ids of the parameters of the optimizer.
            optimizer: name of the optimizer.
        """
        for other, steps in self._stepped_at.items():
            for step in steps:
                earlier = [number for number in backwards if number < step]
                if not earlier or backwards[-1] < step:
                    continue
                weights = (
                    each for name, found in self._names.optimizers() if name == other for each in parameters_of(found)
                )
                theirs = {id(each) for each in weights} - own
                if other == optimizer or any(self._touched[number] & theirs for number in earlier):
                    return True
        return False

    def synchronized(self, backwards: Iterable[int]) -> list[bool]:
        """Returns whether the backward passes were synchronized, as far as this is known."""
        return [self._synchronized[number] for number in backwards if number in self._synchronized]

    def factors(self, backwards: Iterable[int]) -> list[Factor]:
        """Returns the numbers that multiplied the losses of the backward passes."""
        return [factor for number in backwards for factor in self._factors.get(number, [])]

    def line(self, backwards: Sequence[int]) -> str:
        """Returns the line of the script that ran the last of the backward passes; empty if it is not known."""
        return next((self._lines[number] for number in reversed(backwards) if number in self._lines), "")

    # ---- hooks

    def _contribution_to(self, parameter: Tensor) -> Callable[[Tensor], None]:
        key, reference = id(parameter), weakref.ref(parameter)

        def contributed(gradient: Tensor) -> None:
            current = reference()
            if not self.is_running or current is None:  # torch.autograd.grad accumulates no gradients
                return
            record = self._contributions.get(key)
            if record is None or current.grad is None or not any_nonzero(current.grad):
                record = self._contributions[key] = Contributions()
            record.local += projection(gradient)
            if self._number not in record.backwards:
                record.backwards.append(self._number)
            self._touched.setdefault(self._number, set()).add(key)
            network = self._names.network_of(current)
            if network in self.synchronizes:
                self._synchronized[self._number] = self.synchronizes[network]

        return contributed

    def _watched(self, backward: Callable[..., None]) -> Callable[..., None]:
        """Wraps `torch.autograd.backward`, which `Tensor.backward` calls, to record the factors of the loss."""

        @wraps(backward)
        def watched(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self.is_running:  # activation checkpointing runs a nested backward pass
                return backward(tensors, *args, **kwargs)
            self._harmless(self._read_factors)(tensors)
            self._lines[self._number] = line_of_script()
            self.is_running = True
            try:
                return backward(tensors, *args, **kwargs)
            finally:
                self.is_running = False
                self._number += 1

        return watched

    def _read_factors(self, tensors: Tensor | Sequence[Tensor]) -> None:
        losses = [tensors] if isinstance(tensors, Tensor) else [*tensors]
        self.reads_factors = True
        try:
            self._factors[self._number] = [Factor(*each) for loss in losses for each in loss_factors(loss)]
        except Recomputed:  # a checkpointed function computes the loss, so its factors stay unknown
            pass
        finally:
            self.reads_factors = False
