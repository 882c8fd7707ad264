"""Backward passes and optimizer steps of an iteration, run by Lightning's Trainer and its strategy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.common._compat.lightning import count_step
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.base import backward_arguments, block_backward_sync, sharding
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.module_networks import parameters_of
from lit_gans.training.backend import Backend
from lit_gans.training.gan import GANDefinition


class TrainerBackend(Backend):
    """Runs backward passes and optimizer steps with Lightning's Trainer and its strategy.

    Args:
        module: a module that is attached to a Trainer.
    """

    def __init__(self, module: GANDefinition) -> None:
        self.module, self.trainer = module, module.trainer
        self.rank, self.world_size = self.trainer.global_rank, self.trainer.world_size
        super().__init__(
            _optimizer_of_each_network(module, self.trainer.optimizers),
            [config.scheduler for config in self.trainer.lr_scheduler_configs],
        )

    def backward(self, network: str, loss: Tensor, retain_graph: bool) -> None:
        arguments = backward_arguments(self.trainer.strategy, network)
        self.module.manual_backward(loss, retain_graph=retain_graph, **arguments)

    def without_averaging(self) -> AbstractContextManager[Any]:
        return block_backward_sync(self.trainer.strategy)

    def step(self, network: str) -> None:
        """Steps the network's optimizer and clears its gradients.

        Within the strategy's step, Lightning unscales the gradients and calls `on_before_optimizer_step`, which clips
        them. Lightning's wrapper of the optimizer is not used, since it would count each step in `trainer.global_step`.
        """
        optimizer = self.optimizers[network]
        with self.trainer.profiler.profile("optimizer_step"):  # type: ignore[attr-defined]  # set by a connector
            self.trainer.strategy.optimizer_step(optimizer, lambda: None)  # the gradients are already computed
        optimizer.zero_grad()

    def mean_over_ranks(self, value: Tensor) -> Tensor:
        """Returns the mean of a tensor over all ranks, without synchronizing with the host."""
        mean: Tensor = self.trainer.strategy.reduce(value, reduce_op="mean")
        return mean

    def gather(self, rows: Tensor) -> Tensor:
        if self.world_size == 1:
            return rows
        gathered: Tensor = self.trainer.strategy.all_gather(rows)
        return gathered.flatten(0, 1)

    def local_shard(self, weight: nn.Parameter) -> Tensor:
        strategy = sharding(self.trainer.strategy)
        return weight if strategy is None else strategy.local_shard(weight)

    def count_iteration(self) -> None:
        count_step(self.trainer)

    def loss_scales(self) -> Mapping[str, Tensor]:
        plugin = self.trainer.precision_plugin
        return plugin.scales() if isinstance(plugin, NetworkScaling) else {}


def _optimizer_of_each_network(
    module: GANDefinition, optimizers: list[torch.optim.Optimizer]
) -> dict[str, torch.optim.Optimizer]:
    """Returns the optimizers by the name of their network.

    Raises:
        RefusedInput: `configure_optimizers` of a subclass returns other optimizers, or in another order.
    """
    names = module.network_names
    network_of = {id(weight): name for name in names for weight in module.get_submodule(name).parameters()}
    stepped = [{network_of.get(id(weight), "") for weight in parameters_of(optimizer)} for optimizer in optimizers]
    if [each - {""} for each in stepped] != [{name} for name in names]:  # "": a parameter of no network
        raise RefusedInput(
            f"{type(module).__name__}.configure_optimizers must return one optimizer for each network, in the order"
            f" {', '.join(names)}."
        )
    return dict(zip(names, optimizers, strict=True))
