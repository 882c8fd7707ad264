"""Exponential moving average (EMA) of the parameters of any submodule, under every strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.torch import copy_all, lerp_all
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import Callback, LightningModule, Strategy, Trainer, TrainerFn, rank_zero_warn
from lit_gans.strategies.base import sharding


def refuse_decay(decay: float) -> None:
    """Raises `RefusedInput` for a decay rate outside [0, 1)."""
    if not 0 <= decay < 1:
        raise RefusedInput(f"decay={decay} must lie in [0, 1).")


def warmed_up(decay: float, updates: int) -> float:
    """Returns the decay rate of update number t with warmup: min(`decay`, (1 + t) / (10 + t))."""
    return min(decay, (1 + updates) / (10 + updates))


class AveragedParameters:
    """Exponential moving average of parameters. If parameters are sharded, each rank averages only its shards.

    Args:
        parameters: trained parameters.
        strategy: strategy that trains the parameters.
        start: full tensors with the initial values of the average. Unless parameters are sharded, these tensors are
            updated in place. `None` starts with copies of the parameters.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], strategy: Strategy, start: Iterable[Tensor] | None = None
    ) -> None:
        self._parameters, self._strategy = list(parameters), sharding(strategy)
        self._trained = self._stored()
        self._backup: list[Tensor] | None = None  # trained values, while the parameters have the averaged values
        if start is None:
            self._average = [trained.clone() for trained in self._trained]
        elif self._strategy is None:
            self._average = list(start)
        else:
            pairs = zip(start, self._parameters, strict=True)
            self._average = [self._strategy.shard(full.detach().to(param.device), param) for full, param in pairs]

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """Updates the average with the current parameters: average = decay * average + (1 - decay) * parameters."""
        lerp_all(self._average, self._trained, 1 - decay)

    @torch.no_grad()
    def full(self) -> list[Tensor]:
        """Returns the full tensors of the average. Every rank must call this method."""
        if self._strategy is None:
            return self._average
        pairs = zip(self._average, self._parameters, strict=True)
        return [self._strategy.unshard(average, parameter) for average, parameter in pairs]

    @torch.no_grad()
    def use_average(self) -> None:
        """Copies the averaged values into the parameters, on this rank and without communication.

        A backup of the trained values is kept until `use_trained` restores them. The average itself does not change. If
        an exception is raised, such as a `KeyboardInterrupt` between two parameters, the trained values are restored.
        """
        if self._backup is None:
            self._trained = self._stored()  # the parameters might have moved to another device
            self._backup = [trained.clone() for trained in self._trained]
            try:
                self._set(self._average)
            except BaseException:
                self.use_trained()
                raise

    @torch.no_grad()
    def use_trained(self) -> None:
        """Restores the trained values of the parameters, if `use_average` has replaced them."""
        if self._backup is not None:
            try:
                self._set(self._backup)
            except BaseException:  # finish restoring before the interrupt is raised again
                self._set(self._backup)
                self._backup = None
                raise
            self._backup = None

    @property
    def is_used(self) -> bool:
        """Whether the parameters currently have the averaged values."""
        return self._backup is not None

    def _stored(self) -> list[Tensor]:
        """Returns the parameters, or this rank's shards of them, as tensors that share their memory."""
        if self._strategy is None:
            return [parameter.detach() for parameter in self._parameters]
        return [self._strategy.local_shard(parameter).detach() for parameter in self._parameters]

    def _set(self, values: list[Tensor]) -> None:
        copy_all(self._trained, values)
        if self._strategy is not None:
            for parameter in self._parameters:
                self._strategy.free(parameter)


class NetworkAverage(Callback):
    """Maintains an exponential moving average (EMA) of a network's parameters, and uses the average in validation.

    Under FSDP and ZeRO stage 3, each rank averages only its shards of the parameters. The shards of the average are
    gathered only for checkpoints and in `full_average`. Buffers, such as running statistics, are not averaged.

    A checkpoint contains the full average under the callback's `state_key`, so that training can be resumed under every
    strategy. In the module's state dict, the network always has its trained weights, even if a checkpoint is saved
    during validation.

    If the same module is fitted again, the average is continued. `trainer.validate` uses the average of the last fit,
    or the average in the checkpoint that `ckpt_path` specifies.

    Args:
        network: path of the network in the module, such as `generator`.
        decay: decay rate per training batch, in [0, 1). The first batches use the smaller rate (1 + t) / (10 + t), so
            that the average quickly forgets the initial weights.

    Raises:
        RefusedInput: `decay` is outside [0, 1), or the module has no such network.
    """

    @converts_arguments
    def __init__(self, network: str, decay: float = 0.999) -> None:
        refuse_decay(decay)
        self.network, self.decay = network, decay
        self._updates = 0
        self._names: list[str] = []
        self._average: AveragedParameters | None = None
        self._full: dict[str, Tensor] = {}  # initial values of the average for the next fit or validation
        self._averaged_network: nn.Module | None = None  # None if the average was loaded from a checkpoint
        self._hook: RemovableHandle | None = None  # registered only during validation

    @property
    def state_key(self) -> str:
        return f"NetworkAverage({self.network})"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.network not in dict(pl_module.named_modules(remove_duplicate=False)):
            names = ", ".join(name for name, _ in pl_module.named_children())
            raise RefusedInput(f"{self.state_key}: {type(pl_module).__name__} has no such network, but has: {names}.")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._averaged_network not in (None, pl_module.get_submodule(self.network)):
            self._updates, self._full = 0, {}
        self._begin(trainer, pl_module)
        self._full = {}

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        self._averaged_network = module.get_submodule(self.network)
        if strategy := sharding(trainer.strategy):  # an earlier forward pass might have left full tensors
            for parameter in self._averaged_network.parameters():
                strategy.free(parameter)
        named = dict(self._averaged_network.named_parameters())
        self._names = list(named)
        full = [self._full[name].to(param.device, copy=True) for name, param in named.items() if name in self._full]
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
            if not self._full or self._averaged_network not in (None, pl_module.get_submodule(self.network)):
                rank_zero_warn(
                    f"there is no average of {self.network}, so that the trained weights are validated: pass the"
                    f" ckpt_path of a run with {self.state_key} to trainer.validate."
                )
                return
            self._begin(trainer, pl_module)
        if self._average is None:  # the sanity check runs before the training starts
            return
        self._average.use_average()
        self._hook = pl_module.get_submodule(self.network).register_state_dict_pre_hook(self._save_trained)

    def _save_trained(self, *_: Any) -> None:
        """Restores the trained weights when the state dict is read, so that checkpoints contain the trained weights.

        The next validation batch uses the average again.
        """
        if self._average is not None:
            self._average.use_trained()

    def on_validation_batch_start(self, *_: Any) -> None:
        if self._hook is not None and self._average is not None:
            self._average.use_average()

    def on_validation_end(self, *_: Any) -> None:
        self._end_validation()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end_validation()
        if sharding(trainer.strategy) is None:  # other ranks might have exited, so shards cannot be gathered
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
        """Context manager in which the network has the averaged parameters, on this rank and without communication."""
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
        """Returns the full averaged parameters by their names in the network. Every rank must call this method."""
        if self._average is None or self._full:
            return self._full
        return {name: full.cpu().clone() for name, full in zip(self._names, self._average.full(), strict=True)}

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self.full_average()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates, self._full = state_dict["updates"], dict(state_dict["average"])
        self._averaged_network = None
