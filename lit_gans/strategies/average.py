"""An exponential moving average of any part of any module, under every strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lit_gans.common._compat.torch import lerp_all
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import Callback, LightningModule, Strategy, Trainer
from lit_gans.strategies.base import sharding


def refuse_decay(decay: float) -> None:
    """Raises `RefusedInput` for a decay rate outside [0, 1)."""
    if not 0 <= decay < 1:
        raise RefusedInput(f"decay={decay} must lie in [0, 1).")


def warmed_up(decay: float, updates: int) -> float:
    """Returns the decay rate of an update, given its number: (1 + t) / (10 + t) at first, up to `decay`."""
    return min(decay, (1 + updates) / (10 + updates))


class AveragedParameters:
    """An exponential moving average of parameters, of which each rank averages what it stores: shards, if any.

    Args:
        parameters: the trained parameters.
        strategy: trains them.
        start: full tensors that the average starts with, which are averaged in place unless parameters are sharded;
            `None` starts with copies of the parameters.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], strategy: Strategy, start: Iterable[Tensor] | None = None
    ) -> None:
        self._parameters, self._strategy = list(parameters), sharding(strategy)
        if self._strategy is None:
            self._trained = [own.detach() for own in self._parameters]
        else:
            self._trained = [self._strategy.local_shard(own).detach() for own in self._parameters]
        if start is None:
            self._average = [trained.clone() for trained in self._trained]
        elif self._strategy is None:
            self._average = list(start)
        else:
            pairs = zip(start, self._parameters, strict=True)
            self._average = [self._strategy.shard(full.detach().to(own.device), own) for full, own in pairs]

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """Moves the average towards the parameters."""
        lerp_all(self._average, self._trained, 1 - decay)

    @torch.no_grad()
    def full(self) -> list[Tensor]:
        """Returns the full tensors of the average; every rank must call it."""
        if self._strategy is None:
            return self._average
        pairs = zip(self._average, self._parameters, strict=True)
        return [self._strategy.unshard(average, own) for average, own in pairs]

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchanges the average and the trained parameters, on this rank and without communication."""
        for trained, average in zip(self._trained, self._average, strict=True):
            kept = trained.clone()
            trained.copy_(average)
            average.copy_(kept)
        if self._strategy is not None:
            for own in self._parameters:
                self._strategy.free(own)


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
        self._names: list[str] = []
        self._average: AveragedParameters | None = None  # in a training
        self._loaded: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        return f"NetworkAverage({self.network})"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        named = dict(pl_module.get_submodule(self.network).named_parameters())
        self._names = list(named)
        loaded = [self._loaded[name].to(own.device, copy=True) for name, own in named.items() if name in self._loaded]
        self._average = AveragedParameters(named.values(), trainer.strategy, loaded or None)

    def on_train_batch_end(self, *_: Any) -> None:
        self._updates += 1
        if self._average is not None:
            self._average.update(warmed_up(self.decay, self._updates))

    def on_validation_start(self, *_: Any) -> None:
        self._exchange()

    def on_validation_end(self, *_: Any) -> None:
        self._exchange()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Computes with the average instead of the trained parameters, on this rank and without communication."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        if self._average is not None:  # not in the sanity check before a training
            self._average.exchange()

    def full_average(self) -> dict[str, Tensor]:
        """Returns the full averaged parameters, by their names in the network; every rank must call it."""
        if self._average is None:
            return self._loaded
        return {name: full.cpu().clone() for name, full in zip(self._names, self._average.full(), strict=True)}

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self.full_average()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates, self._loaded = state_dict["updates"], dict(state_dict["average"])
