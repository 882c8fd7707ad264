"""Whether the gradients of a network are those of all ranks or of this rank alone, and the guard of every step.

For each network, the strategies know one state of its gradients:

    none        no backward has reached the network since its last step
    local       gradients of this rank alone; a step with them would move the ranks apart
    averaged    gradients that are averaged over all ranks

    what happens                                                        state afterwards
    a parameter accumulates a gradient, whoever runs the backward       local
    `manual_backward` ends that has reached the network                 averaged, as all that was accumulated is
    the same inside `block_backward_sync`                               local
    the same with an error                                              local
    the optimizer steps                                                 none

A backward that does not reach a network leaves its state as it is. Where gradients exist that no backward has
computed since the last step, such as assigned ones, their values are compared between the ranks.
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
class State:
    """State of a network's gradients.

    Attributes:
        name: see the docstring of this file.
        remedy: for local gradients, what a module must do instead.
    """

    name: Literal["none", "local", "averaged"]
    remedy: str = ""


NONE, AVERAGED = State("none"), State("averaged")
LOCAL = State("local", "compute them by self.manual_backward(loss), which averages them over the processes.")
BLOCKED = State(
    "local",
    "its last backward ran inside block_backward_sync. Run the last one before a step outside of it, which averages the"
    " sum of all.",
)
INTERRUPTED = State(
    "local", "its last backward raised an error before it had averaged them. Call zero_grad() of its optimizer first."
)
ASSIGNED = (
    "no backward has computed them since its last step, and the processes have different ones: compute them by"
    " self.manual_backward(loss), or assign their mean,"
    ' self.trainer.strategy.reduce(gradient, reduce_op="mean").'
)
_SAME = 1e-4  # relative difference between the sums of equal gradients on different devices


class Gradients:
    """The state of one network's gradients, which the strategy and the optimizer of an engine share.

    Args:
        network: name of the network.
    """

    def __init__(self, network: str) -> None:
        self.network = network
        self.state = NONE

    def watch(self, parameters: Iterable[nn.Parameter]) -> tuple[RemovableHandle, ...]:
        """Makes the state local whenever a parameter accumulates a gradient; returns the handles of the hooks."""

        def accumulated(parameter: Tensor) -> None:
            if parameter.requires_grad:  # a graph from before the parameter was frozen runs the hook, but adds nothing
                self.state = LOCAL

        return tuple(parameter.register_post_accumulate_grad_hook(accumulated) for parameter in parameters)

    def refuse(self, remedy: str) -> None:
        """Raises `RefusedInput` for gradients of this rank alone."""
        raise RefusedInput(f"{self.network} would be stepped with gradients of this process alone: {remedy}")

    def refuse_local(self) -> None:
        """Raises `RefusedInput` if the state is local."""
        if self.state.name == "local":
            self.refuse(self.state.remedy)


@contextmanager
def running_backward(networks: Mapping[str, Gradients], trained: Container[str], after: State) -> Iterator[None]:
    """Context manager for a backward pass, which sets the states of the networks.

    Args:
        networks: all networks by name.
        trained: names of the networks that the backward pass trains.
        after: state of the trained networks that the backward pass has reached.
    """
    before = {name: each.state for name, each in networks.items()}
    for each in networks.values():
        each.state = NONE
    try:
        yield
    except BaseException:
        after, trained = INTERRUPTED, networks
        raise
    finally:
        for name, each in networks.items():
            if each.state is NONE:  # not reached
                each.state = before[name]
            elif name in trained:
                each.state = after


def sums(tensors: Iterable[Tensor | None], device: torch.device) -> Tensor:
    """Returns the sum and the sum of the absolute values of each tensor, (tensors, 2); -1 for `None`."""
    missing = torch.full((2,), -1.0, device=device)
    rows = [missing if each is None else torch.stack([each.sum(), each.abs().sum()]).to(missing) for each in tensors]
    return torch.stack(rows).nan_to_num()


def which_differ(of_ranks: Tensor) -> list[bool]:
    """Returns for each tensor whether its sums, (ranks, tensors, 2), differ between the ranks by more than rounding."""
    differ = (of_ranks - of_ranks[:1]).abs() > _SAME * of_ranks[..., 1:].abs()
    return differ.any(dim=0).any(dim=-1).tolist()
