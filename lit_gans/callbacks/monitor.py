"""Reads new metric values for the best checkpoint and for early stopping."""

from __future__ import annotations

from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.common.errors import RefusedInput, nearest, refuse_below
from lit_gans.training.callback import GenerativeCallback, directions_of, refuse_unmeasured

_METRIC = "metric/"  # prefix of the keys that callbacks measure and list in `directions`


class Monitor:
    """Reads every new value of a metric once and ranks it.

    Args:
        name: key of the metric; `auto` uses the first measured FID, if any; None reads no metric.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction that the
            measurement declares, or `min` if no measurement declares one, as for losses.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name, self.mode = name, mode
        self.reads_logged = name not in (None, "auto") and not name.startswith(_METRIC)  # see `GenerativeCallback`
        self._seen: torch.Tensor | None = None
        self._has_iterated = False  # whether an iteration of this run has ended

    def state_key(self, name: str) -> str:
        """Returns the state key of a callback of class `name` that reads this metric."""
        return name if self.name in (None, "auto") else f"{name}({self.name})"

    def start(self, trainer: Trainer) -> None:
        """At the start of a new or resumed run, marks the value as read."""
        self._has_iterated, self._seen = False, self._value(trainer)

    def refuse_unmeasured(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if the key begins with `metric/` and no callback measures it."""
        if self.name is not None and self.name.startswith(_METRIC):
            refuse_unmeasured(trainer, f"monitor={self.name}", self.name)

    def refuse_unlogged(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if the first iteration has not logged the metric. Called after every iteration."""
        if self._has_iterated:
            return
        self._has_iterated, logged = True, trainer.callback_metrics
        if self.name not in (None, "auto", *logged, *directions_of(trainer)):
            raise RefusedInput(f"monitor={self.name}: nothing measures it; {nearest(str(self.name), logged)}")

    def new(self, trainer: Trainer) -> float | None:
        """Returns the value averaged over ranks if it has not been read before, otherwise None."""
        value = self._value(trainer)
        if value is None or value is self._seen:
            return None
        self._seen = value
        return self.value(trainer)

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

    `last.ckpt` is written as usual. Lightning's `EarlyStopping` checks at the end of every epoch instead, and counts an
    old value as a new measurement.

    Args:
        patience: number of measurements without a better value after which the training stops; null never stops it.
        monitor: key of the metric; `auto` uses the FID.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.

    Raises:
        RefusedInput: If `patience` is below 1, or if nothing logs the metric.
    """

    def __init__(
        self, patience: int | None = None, monitor: str = "auto", mode: Literal["auto", "min", "max"] = "auto"
    ) -> None:
        refuse_below(1, patience=patience)
        self.patience, self._monitor = patience, Monitor(None if patience is None else monitor, mode)
        self.reads_logged = self._monitor.reads_logged
        self.best_value: float | None = None
        self.waited = 0
        self._has_measured = False

    @property
    def state_key(self) -> str:
        return self._monitor.state_key("StopOnPlateau")

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.waited = state_dict["best_value"], state_dict["waited"]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._monitor.refuse_unmeasured(trainer)  # called here, because callbacks set their `directions` in `setup`

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.global_step == 0 and self._has_measured:  # this callback was used in a previous run
            self.best_value, self.waited = None, 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._monitor.refuse_unlogged(trainer)

    def on_measure_end(self, trainer: Trainer) -> None:
        value = self._monitor.new(trainer)
        if value is None or self.patience is None:
            return
        self._has_measured = True
        rank = self._monitor.rank(trainer, value)
        if self.best_value is None or rank < self._monitor.rank(trainer, self.best_value):
            self.best_value, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
