"""Tracks whether a network's gradients have been averaged over the ranks, and prevents steps with local gradients.

The gradients of each network are in one of three states:

    none        no backward pass has reached the network since its last step
    local       the gradients are not averaged; a step with them would make the weights differ between the ranks
    averaged    the gradients are averaged over all ranks

    event                                                               state afterwards
    a parameter accumulates a gradient in any backward pass             local (sharded by FSDP: averaged)
    `manual_backward` has reached the network and ends                  averaged, including all accumulated gradients
    `manual_backward` ends inside `block_backward_sync`                 local
    `manual_backward` raises an error                                   local
    the optimizer steps                                                 none

A backward pass that does not reach a network does not change its state. In the state none, gradients can still exist,
because the module assigned them. Their values are then compared between the ranks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common.errors import RefusedInput


@dataclass(frozen=True)
class GradientState:
    """State of a network's gradients.

    Attributes:
        name: name of the state, see the docstring of this file.
        remedy: for local gradients, the advice at the end of the error message.
    """

    name: Literal["none", "local", "averaged"]
    remedy: str = ""


NONE, AVERAGED = GradientState("none"), GradientState("averaged")
LOCAL = GradientState("local", "compute them with self.manual_backward(loss), which averages them over the processes.")
BLOCKED = GradientState(
    "local",
    "its last backward pass ran inside block_backward_sync. Run the last backward pass before each step outside of it,"
    " which averages the sum of all accumulated gradients.",
)
INTERRUPTED = GradientState(
    "local",
    "its last backward pass raised an error before the gradients were averaged. Call zero_grad() of its optimizer"
    " first.",
)
ASSIGNED = (
    "no backward pass has computed them since the last step, and they differ between the processes: compute them with"
    " self.manual_backward(loss), or assign their mean,"
    ' self.trainer.strategy.reduce(gradient, reduce_op="mean").'
)
_TOLERANCE = 1e-4  # relative tolerance for the sums of gradients, since devices round differently


class Gradients:
    """State of one network's gradients, which is shared by the strategy and, under DeepSpeed, the `EngineOptimizer`.

    Args:
        network: name of the network.
    """

    def __init__(self, network: str) -> None:
        self.network = network
        self.state = NONE
        self.had_any: bool | None = None  # whether any step had a gradient; None before the first step

    def note_step(self, had_gradient: bool) -> None:
        """Notes a step of the optimizer, with or without a gradient of any parameter."""
        self.had_any = bool(self.had_any) or had_gradient

    def watch(self, parameters: Iterable[nn.Parameter]) -> tuple[RemovableHandle, ...]:
        """Registers hooks that set the state to local when a parameter accumulates a gradient; returns the handles."""

        def set_local(parameter: Tensor) -> None:
            # The hook also runs for a parameter that was frozen after its graph was built, but without a new gradient.
            if parameter.requires_grad:
                self.state = LOCAL

        return tuple(parameter.register_post_accumulate_grad_hook(set_local) for parameter in parameters)

    def refuse(self, remedy: str) -> None:
        """Raises `RefusedInput` for gradients that have not been averaged over the ranks."""
        raise RefusedInput(f"{self.network} would be stepped with gradients of this process only: {remedy}")

    def refuse_local(self) -> None:
        """Raises `RefusedInput` if the state is local."""
        if self.state.name == "local":
            self.refuse(self.state.remedy)


@contextmanager
def running_backward(
    networks: Mapping[str, Gradients], trained: Container[str], after: GradientState
) -> Iterator[None]:
    """Context manager for a backward pass that updates the state of each network's gradients.

    Args:
        networks: gradients of all networks, by the network's name.
        trained: names of the networks that the backward pass trains.
        after: new state of each trained network that the backward pass reaches. Other networks that the pass reaches
            keep the state that their hooks set.
    """
    before = {name: gradients.state for name, gradients in networks.items()}
    for gradients in networks.values():
        gradients.state = NONE
    try:
        yield
    except BaseException:
        after, trained = INTERRUPTED, networks
        raise
    finally:
        for name, gradients in networks.items():
            if gradients.state is NONE:  # the backward pass did not reach this network
                gradients.state = before[name]
            elif name in trained:
                gradients.state = after


def sums(tensors: Iterable[Tensor | None], device: torch.device) -> Tensor:
    """Returns a projection, the sum and the sum of absolute values of each tensor, with shape (tensors, 3).

    The projection onto a fixed direction depends on the positions of the values. All three numbers are -1 for None.
    """
    missing = torch.full((3,), -1.0, device=device)
    rows = [
        missing if x is None else torch.stack([_projection(x), x.sum(), x.abs().sum()]).to(missing) for x in tensors
    ]
    return torch.stack(rows).nan_to_num()


def norms(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """Returns the sum, the norm and the sum of absolute values of each tensor, with shape (tensors, 3).

    Unlike `sums`, needs no memory of the size of a tensor.
    """
    rows = []
    for tensor in tensors:
        values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        dtype = torch.promote_types(values.dtype, torch.float32)
        both = [torch.linalg.vector_norm(values, order, dtype=dtype) for order in (2, 1)]
        rows.append(torch.stack([values.sum(dtype=dtype), *both]).to(device, torch.float32))
    return torch.stack(rows).nan_to_num()


def _projection(tensor: Tensor) -> Tensor:
    """Projects a tensor onto a fixed direction, which depends only on the shape."""
    direction = torch.arange(tensor.numel(), device=tensor.device, dtype=torch.float32).mul_(0.7).cos_()
    return (tensor * direction.view(tensor.shape)).sum()


def which_differ(of_ranks: Tensor) -> list[bool]:
    """Returns for each tensor whether it differs between the ranks by more than rounding errors.

    Args:
        of_ranks: `sums` of the tensors on all ranks, with shape (ranks, tensors, 3).
    """
    differ = (of_ranks - of_ranks[:1]).abs() > _TOLERANCE * of_ranks[..., 2:].abs()
    return differ.any(dim=0).any(dim=-1).tolist()
