"""An exponential moving average of any part of any module, under every strategy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from lit_gans.common._compat.torch import lerp_all
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.contracts import sharding


def refuse_decay(decay: float) -> None:
    """Raises `RefusedInput` for a decay rate outside [0, 1)."""
    if not 0 <= decay < 1:
        raise RefusedInput(f"decay={decay} must lie in [0, 1).")


def warmed_up(decay: float, updates: int) -> float:
    """Returns the decay rate of an update, given its number: (1 + t) / (10 + t) at first, up to `decay`."""
    return min(decay, (1 + updates) / (10 + updates))


class NetworkAverage(Callback):
    """Maintains an exponential moving average of the parameters of a network, and validates with it.

    Each rank averages what it stores of the parameters: their shards under FSDP and ZeRO stage 3, which are gathered
    only in a checkpoint and in `full_average`. Buffers, such as running statistics, are not averaged.

    The checkpoint has the full average under the callback's `state_key`, so that it resumes under every strategy.

    Args:
        network: path of the network in the module, such as `generator`.
        decay: decay rate per training batch, in [0, 1); the first batches use the smaller value (1 + t) / (10 + t), so
            that the average quickly forgets the initial weights.

    Raises:
        RefusedInput: `decay` is outside [0, 1).
    """

    def __init__(self, network: str, decay: float = 0.999) -> None:
        refuse_decay(decay)
        self.network, self.decay = network, decay
        self._updates = 0
        self._trainer: Trainer | None = None
        self._parameters: dict[str, nn.Parameter] = {}
        self._average: dict[str, Tensor] = {}  # what this rank stores
        self._loaded: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        return f"NetworkAverage({self.network})"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.network not in dict(pl_module.named_modules()):
            children = [name for name, _ in pl_module.named_children()]
            raise RefusedInput(f"NetworkAverage({self.network!r}): the module has no such network, but {children}.")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trainer = trainer
        self._parameters = dict(pl_module.get_submodule(self.network).named_parameters())
        strategy = sharding(trainer.strategy)
        for name, parameter in self._parameters.items():
            full = self._loaded.get(name)
            if full is None:
                self._average[name] = self._stored(parameter).clone()
            elif strategy is None:
                self._average[name] = full.to(parameter.device, copy=True)
            else:
                self._average[name] = strategy.shard(full.to(parameter.device), parameter)
        self._loaded = {}

    @torch.no_grad()
    def on_train_batch_end(self, *_: Any) -> None:
        self._updates += 1
        stored = [self._stored(parameter) for parameter in self._parameters.values()]
        lerp_all(list(self._average.values()), stored, 1 - warmed_up(self.decay, self._updates))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._exchange()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._exchange()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Computes with the average instead of the trained parameters, on this rank and without communication."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def full_average(self) -> dict[str, Tensor]:
        """Returns the full averaged parameters, by their names in the network; every rank must call it."""
        if self._trainer is None:
            return self._loaded
        strategy = sharding(self._trainer.strategy)
        if strategy is None:
            return {name: value.clone() for name, value in self._average.items()}
        return {name: strategy.unshard(self._average[name], own).cpu() for name, own in self._parameters.items()}

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, average in self._average.items():
            stored = self._stored(self._parameters[name])
            trained = stored.clone()
            stored.copy_(average)
            average.copy_(trained)

    def _stored(self, parameter: nn.Parameter) -> Tensor:
        strategy = None if self._trainer is None else sharding(self._trainer.strategy)
        return parameter.detach() if strategy is None else strategy.local_shard(parameter).detach()

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self.full_average()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates, self._loaded = state_dict["updates"], dict(state_dict["average"])
