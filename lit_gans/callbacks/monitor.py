"""Reads new metric values for the best checkpoint and for early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lit_gans.common.errors import RefusedInput, nearest, refuse_below
from lit_gans.metrics.protocol import conflicts_of
from lit_gans.training.callback import GenerativeCallback, callbacks_of, directions_of, refuse_unmeasured
from lit_gans.training.module import AdversarialModule

_METRIC = "metric/"  # prefix of the keys that callbacks measure and list in `directions`


class Monitor:
    """Reads the value of a metric at most once per iteration, and ranks it.

    Args:
        name: key of the metric; `auto` uses the first measured FID, if any; None reads no metric.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction that the
            measurement declares, or `min` if no measurement declares one, as for losses.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name, self.mode = name, mode
        self.reads_logged = name not in (None, "auto") and not name.startswith(_METRIC)  # see `GenerativeCallback`
        self.metric: str | None = None  # key of the metric of the values that the callback has kept
        self.protocol: Mapping[str, Any] = {}  # protocol of these values; empty if none is known
        self.read_at = -1  # iteration of the last value that was returned
        self._last: float | None = None  # last value that was read in this run
        self._is_verified = False  # whether `refuse_unlogged` has checked this run

    def state_key(self, name: str) -> str:
        """Returns the state key of a callback of class `name` that reads this metric."""
        return name if self.name in (None, "auto") else f"{name}({self.name})"

    def state(self) -> dict[str, Any]:
        """Returns the metric and the protocol of the values that the callback has kept, for a checkpoint."""
        return {"metric": self.metric, "protocol": dict(self.protocol)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Loads what `state` has returned."""
        self.metric, self.protocol = state.get("metric"), state.get("protocol", {})

    def reset(self) -> None:
        """Forgets the metric and the protocol of an earlier run."""
        self.metric, self.protocol, self.read_at = None, {}, -1

    def forgets(self, trainer: Trainer) -> bool:
        """Sets `metric` and `protocol` to those that are read, and returns whether the kept values are of others.

        This happens if a run resumes with other scores, with another `monitor`, or with settings of the measurement
        that make its values incomparable. A warning says so.
        """
        previous, key = self.metric, self._key(trainer)
        self.metric = key or previous
        before, protocol = self.protocol, next((owner.protocol for owner in self._owners(trainer)), {})
        self.protocol = protocol or before
        conflicts = conflicts_of(before, self.protocol)
        if previous not in (None, self.metric):
            why = f"the best value until now is of {previous}, but {key} is monitored now"
        elif conflicts:
            why = f"the values until now were measured with other settings ({conflicts})"
        else:
            return False
        rank_zero_warn(f"{why}: the best starts anew.")
        return True

    def start(self, trainer: Trainer) -> None:
        """At the start of a new or resumed run, marks the value of this iteration as read."""
        self._is_verified, self.read_at, self._last = False, trainer.global_step, None

    def refuse_unmeasured(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if the key begins with `metric/` and no callback measures it."""
        if self.name is not None and self.name.startswith(_METRIC):
            refuse_unmeasured(trainer, f"monitor={self.name}", self.name)

    def refuse_unlogged(self, trainer: Trainer, *, is_complete: bool = False) -> None:
        """Raises `RefusedInput` if nothing has logged the metric. Called after iterations and after epochs.

        A GAN of this package without validation logs all values in its first iteration. Every other module can log the
        metric in validation or at the end of an epoch.

        Args:
            trainer: the trainer.
            is_complete: whether an epoch has ended, with a validation if there is one.
        """
        logs_every_iteration = isinstance(trainer.lightning_module, AdversarialModule)
        if self._is_verified or not (is_complete or (logs_every_iteration and not trainer.enable_validation)):
            return
        self._is_verified, logged = True, trainer.callback_metrics
        if self.name not in (None, "auto", *logged, *directions_of(trainer)):
            raise RefusedInput(f"monitor={self.name}: nothing measures it; {nearest(str(self.name), logged)}")

    def new(self, trainer: Trainer) -> float | None:
        """Returns the value averaged over ranks, or None if it was read in this iteration or was not measured in it.

        Of a value that a module logs, it is unknown when the module logged it last.
        """
        step = trainer.global_step
        if self._value(trainer) is None or self.read_at == step:
            return None
        owners = self._owners(trainer)
        if owners and all(owner.measured_at != step for owner in owners):
            return None
        self.read_at = step
        return self.value(trainer)

    def latest(self, trainer: Trainer, has_measured: bool) -> float | None:
        """Returns a value that was measured or logged since the last call, or None if there is none.

        A logged value that is equal to the last one was probably not logged again. A mean over the epoch of a value
        that the last iteration has also logged is not returned.

        Args:
            trainer: the trainer.
            has_measured: whether callbacks have measured in this iteration.
        """
        if not self.reads_logged:  # reading `trainer.callback_metrics` is slow
            return self.new(trainer) if has_measured else None
        value = self.value(trainer)
        if value is None or value == self._last:
            return None
        self._last = value
        if self.read_at == trainer.global_step:
            return None
        self.read_at = trainer.global_step
        return value

    def value(self, trainer: Trainer) -> float | None:
        """Returns the last value averaged over ranks, or None if there is no value."""
        value = self._value(trainer)
        if value is None or trainer.world_size == 1:
            return value if value is None else float(value)
        return float(trainer.strategy.reduce(value.to(trainer.strategy.root_device, torch.double, copy=True)))

    def monitored(self, trainer: Trainer) -> tuple[str, str] | None:
        """Returns the key of the metric and the best direction, `min` or `max`, or None if there is no metric.

        Must be called after every callback has set its `directions`.
        """
        key = self._key(trainer)
        return None if key is None else (key, self._mode(trainer) or "min")

    def rank(self, trainer: Trainer, value: float) -> tuple[bool, float]:
        """Returns a sort key that is smaller for better values. NaN has the largest key."""
        return value != value, -value if self._mode(trainer) == "max" else value

    def _owners(self, trainer: Trainer) -> list[GenerativeCallback]:
        """Returns the callbacks that measure the metric."""
        key = self._key(trainer)
        return [each for each in callbacks_of(trainer, GenerativeCallback) if key in each.directions]

    def _mode(self, trainer: Trainer) -> str | None:
        return directions_of(trainer).get(self._key(trainer) or "") if self.mode == "auto" else self.mode

    def _key(self, trainer: Trainer) -> str | None:
        if self.name != "auto":
            return self.name
        # the order of the keys is the same after resuming, so the same FID is chosen
        known = [*directions_of(trainer), *trainer.callback_metrics]
        return next((name for name in known if name.startswith("metric/fid_")), None)

    def _value(self, trainer: Trainer) -> torch.Tensor | None:
        key = self._key(trainer)
        return None if key is None else trainer.callback_metrics.get(key)


class StopOnPlateau(GenerativeCallback):
    """Stops the training after `patience` consecutive measurements without a better value of a metric.

    Lightning's `EarlyStopping` checks at the end of every epoch instead, and counts an old value as a new measurement.

    Args:
        patience: number of measurements without a better value after which the training stops; null never stops it.
        monitor: key of the metric; `auto` uses the FID.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.

    Raises:
        RefusedInput: If `patience` is below 1, if nothing logs the metric, or if nothing is measured.
    """

    def __init__(
        self, patience: int | None = None, monitor: str = "auto", mode: Literal["auto", "min", "max"] = "auto"
    ) -> None:
        refuse_below(1, patience=patience)
        self.monitor = monitor
        self.patience, self._monitor = patience, Monitor(None if patience is None else monitor, mode)
        self.reads_logged = self._monitor.reads_logged
        self.best_value: float | None = None
        self.waited = 0
        self._has_measured = False

    @property
    def state_key(self) -> str:
        return self._monitor.state_key("StopOnPlateau")

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether the state is of a callback that monitored `auto`, and that chose the metric of this one."""
        return key == "StopOnPlateau" and state.get("metric") == self._monitor.name

    def state_dict(self) -> dict[str, Any]:
        waiting = {"read_at": self._monitor.read_at, "best_value": self.best_value, "waited": self.waited}
        return self._monitor.state() | waiting

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._monitor.load(state_dict)
        self._monitor.read_at = state_dict.get("read_at", -1)
        self.best_value, self.waited = state_dict["best_value"], state_dict["waited"]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # called here, because callbacks set their `directions` in `setup`, and even if the training is never stopped
        Monitor(self.monitor, "auto").refuse_unmeasured(trainer)
        if self.patience is None:
            return
        if not directions_of(trainer):
            raise RefusedInput(
                f"patience={self.patience}: nothing is measured, so the training would never stop: choose what is"
                " measured with metrics=, or use Lightning's EarlyStopping for a value that the module logs."
            )
        if self._monitor.monitored(trainer) is None:
            raise RefusedInput(
                f"patience={self.patience}: no FID is measured, so the training would never stop; set monitor= to a key"
                f" that is measured ({', '.join(directions_of(trainer))}) or logged."
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.global_step == 0 and self._has_measured:  # this callback was used in a previous run
            self.best_value, self.waited = None, 0
            self._monitor.reset()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._monitor.refuse_unlogged(trainer)

    def on_measure_end(self, trainer: Trainer) -> None:
        value = self._monitor.new(trainer)
        if value is None or self.patience is None:
            return
        self._has_measured = True
        if self._monitor.forgets(trainer):
            self.best_value, self.waited = None, 0
        rank = self._monitor.rank(trainer, value)
        if self.best_value is None or rank < self._monitor.rank(trainer, self.best_value):
            self.best_value, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
