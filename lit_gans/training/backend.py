"""Interface for the backward passes, optimizer steps and cross-rank operations of an iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.strategies.module_networks import parameters_of


class Backend:
    """Runs backward passes and optimizer steps in plain PyTorch on a single process.

    Args:
        optimizers: maps the name of each network to its optimizer.
        schedules: schedulers whose `step` is called after each iteration.
        clip_gradients_to: maximum norm of a network's gradient. None disables clipping.

    Attributes:
        rank, world_size: rank of this process and number of processes.
    """

    rank, world_size = 0, 1

    def __init__(
        self,
        optimizers: Mapping[str, torch.optim.Optimizer],
        schedules: Iterable[Any] = (),
        clip_gradients_to: float | None = None,
    ) -> None:
        self.optimizers, self.schedules, self.clip_gradients_to = optimizers, schedules, clip_gradients_to

    def backward(self, network: str, loss: Tensor, retain_graph: bool) -> None:
        """Accumulates the gradient of a loss in a network's parameters, and averages the result over the ranks."""
        loss.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]

    def without_averaging(self) -> AbstractContextManager[Any]:
        """Context manager in which backward passes do not average gradients over the ranks."""
        return nullcontext()

    def step(self, network: str) -> None:
        """Steps the optimizer of a network and clears its gradients."""
        optimizer = self.optimizers[network]
        if self.clip_gradients_to is not None:
            torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), self.clip_gradients_to)
        optimizer.step()
        optimizer.zero_grad()
        torch.clear_autocast_cache()  # may hold casts of the weights before the step; Lightning uses no cache

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks."""
        return value

    def gather(self, rows: Tensor) -> Tensor:
        """Returns the rows of all ranks, in the order of the ranks."""
        return rows

    def local_shard(self, weight: nn.Parameter) -> Tensor:
        """Returns the part of a weight that this rank holds."""
        return weight

    def loss_scales(self) -> Mapping[str, Tensor]:
        """Returns the gradient scale of each network under fp16. The mapping is empty in other precisions."""
        return {}

    def count_iteration(self) -> None:
        """Called once per iteration, before the finite check.

        Subclasses can count the iteration; this class does not.
        """

    def step_schedules(self) -> None:
        """Updates the settings of the optimizers after an iteration."""
        for schedule in self.schedules:
            schedule.step()
