"""An exponential moving average of any part of any module, under every strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.torch import copy_all, lerp_all
from lit_gans.common.annotations import converts_numbers
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import Callback, LightningModule, Strategy, Trainer, TrainerFn, rank_zero_warn
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
        self._trained = self._stored()
        self._kept: list[Tensor] | None = None  # the trained values, while the parameters have those of the average
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
    def use_average(self) -> None:
        """Gives the parameters the values of the average, on this rank and without communication.

        The trained values are kept until `use_trained` restores them. The average itself does not change. An exception
        at any moment, such as `KeyboardInterrupt` between two parameters, leaves the trained values.
        """
        if self._kept is None:
            self._trained = self._stored()  # a device may have changed since
            self._kept = [trained.clone() for trained in self._trained]
            try:
                self._set(self._average)
            except BaseException:
                self.use_trained()
                raise

    @torch.no_grad()
    def use_trained(self) -> None:
        """Gives the parameters their trained values again, if `use_average` has replaced them."""
        if self._kept is not None:
            try:
                self._set(self._kept)
            except BaseException:  # what a single interrupt has left is completed
                self._set(self._kept)
                self._kept = None
                raise
            self._kept = None

    @property
    def is_used(self) -> bool:
        """Whether the parameters have the values of the average."""
        return self._kept is not None

    def _stored(self) -> list[Tensor]:
        """Returns what this rank stores of the parameters, which shares their memory."""
        if self._strategy is None:
            return [own.detach() for own in self._parameters]
        return [self._strategy.local_shard(own).detach() for own in self._parameters]

    def _set(self, values: list[Tensor]) -> None:
        copy_all(self._trained, values)
        if self._strategy is not None:
            for own in self._parameters:
                self._strategy.free(own)


class NetworkAverage(Callback):
    """Maintains an exponential moving average of the parameters of a network, and validates with it.

    Each rank averages what it stores of the parameters: their shards under FSDP and ZeRO stage 3, which are gathered
    only in a checkpoint and in `full_average`. Buffers, such as running statistics, are not averaged.

    The checkpoint has the full average under the callback's `state_key`, so that it resumes under every strategy. The
    network's own entries are always the trained weights, even if a checkpoint is saved during a validation.

    A further fit of the same module continues the average. `trainer.validate` uses it, too, or the average in the
    checkpoint of its `ckpt_path`.

    Args:
        network: path of the network in the module, such as `generator`.
        decay: decay rate per training batch, in [0, 1); the first batches use the smaller value (1 + t) / (10 + t), so
            that the average quickly forgets the initial weights.

    Raises:
        RefusedInput: `decay` is outside [0, 1).
    """

    @converts_numbers
    def __init__(self, network: str, decay: float = 0.999) -> None:
        refuse_decay(decay)
        self.network, self.decay = network, decay
        self._updates = 0
        self._names: list[str] = []
        self._average: AveragedParameters | None = None
        self._full: dict[str, Tensor] = {}  # the average that the next training or validation begins with
        self._of: nn.Module | None = None  # the network of the average; None for one that was loaded
        self._hook: RemovableHandle | None = None  # during a validation

    @property
    def state_key(self) -> str:
        return f"NetworkAverage({self.network})"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._of not in (None, pl_module.get_submodule(self.network)):
            self._updates, self._full = 0, {}
        self._begin(trainer, pl_module)
        self._full = {}

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        self._of = module.get_submodule(self.network)
        named = dict(self._of.named_parameters())
        self._names = list(named)
        full = [self._full[name].to(own.device, copy=True) for name, own in named.items() if name in self._full]
        self._average = AveragedParameters(named.values(), trainer.strategy, full or None)

    def on_train_batch_end(self, *_: Any) -> None:
        self._updates += 1
        if self._average is not None:
            self._average.update(warmed_up(self.decay, self._updates))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._full = self.full_average()

    # ---- validation with the average

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == TrainerFn.VALIDATING:
            if not self._full or self._of not in (None, pl_module.get_submodule(self.network)):
                rank_zero_warn(
                    f"there is no average of {self.network}, so that its trained weights are validated: give"
                    f" trainer.validate the ckpt_path of a training with {self.state_key}."
                )
                return
            self._begin(trainer, pl_module)
        if self._average is None:  # in the sanity check before a training
            return
        self._average.use_average()
        self._hook = pl_module.get_submodule(self.network).register_state_dict_pre_hook(self._save_trained)

    def _save_trained(self, *_: Any) -> None:
        """Restores the trained weights when a checkpoint reads the network, until the next batch of the validation."""
        if self._average is not None:
            self._average.use_trained()

    def on_validation_batch_start(self, *_: Any) -> None:
        if self._hook is not None and self._average is not None:
            self._average.use_average()

    def on_validation_end(self, *_: Any) -> None:
        self._end_validation()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end_validation()
        if sharding(trainer.strategy) is None:  # shards cannot be gathered from ranks that may have ended
            self._full = self.full_average()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._end_validation()

    def _end_validation(self) -> None:
        if self._average is not None:
            self._average.use_trained()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Computes with the average instead of the trained parameters, on this rank and without communication."""
        average = self._average
        if average is None or average.is_used:
            yield
            return
        try:
            average.use_average()
            yield
        finally:
            average.use_trained()

    def full_average(self) -> dict[str, Tensor]:
        """Returns the full averaged parameters, by their names in the network; every rank must call it."""
        if self._average is None or self._full:
            return self._full
        return {name: full.cpu().clone() for name, full in zip(self._names, self._average.full(), strict=True)}

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self.full_average()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates, self._full, self._of = state_dict["updates"], dict(state_dict["average"]), None
