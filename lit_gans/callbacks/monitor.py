"""What follows a measured value: the best checkpoint, and early stopping."""

from __future__ import annotations

from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.common.errors import RefusedInput, nearest, refuse_below
from lit_gans.training.callback import GenerativeCallback, directions_of, refuse_unmeasured

_METRIC = "metric/"  # begins keys that callbacks measure and name in their `directions`


class Monitor:
    """Reads each new value of a metric once and compares it with others.

    Args:
        name: key of the metric; `auto` uses the FID if it is measured, the first of several; None reads nothing.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction that the
            measurement declares, and `min` for other values, such as losses.
    """

    def __init__(self, name: str | None, mode: str) -> None:
        self.name, self.mode = name, mode
        self.reads_logged = name not in (None, "auto") and not name.startswith(_METRIC)  # see `GenerativeCallback`
        self._seen: torch.Tensor | None = None
        self._iterated = False  # whether this training has had an iteration

    def state_key(self, name: str) -> str:
        """Returns the state key of a callback, given by its name, that reads this metric."""
        return name if self.name in (None, "auto") else f"{name}({self.name})"

    def start(self, trainer: Trainer) -> None:
        """Marks the value at the start of a new or resumed training as read."""
        self._iterated, self._seen = False, self._value(trainer)

    def refuse_unmeasured(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if no callback measures the metric, unless it is of another kind, such as a loss."""
        if self.name is not None and self.name.startswith(_METRIC):
            refuse_unmeasured(trainer, f"monitor={self.name}", self.name)

    def refuse_unlogged(self, trainer: Trainer) -> None:
        """Raises `RefusedInput` if nothing has logged the metric in the first iteration, after which this is called."""
        if self._iterated:
            return
        self._iterated, logged = True, trainer.callback_metrics
        if self.name not in (None, "auto", *logged, *directions_of(trainer)):
            raise RefusedInput(f"monitor={self.name}: nothing measures it; {nearest(str(self.name), logged)}")

    def new(self, trainer: Trainer) -> float | None:
        """Returns the value if it was measured in this iteration, averaged over ranks, otherwise None."""
        value = self._value(trainer)
        if value is None or value is self._seen:
            return None
        self._seen = value
        return self.value(trainer)

    def value(self, trainer: Trainer) -> float | None:
        """Returns the last value, averaged over ranks, or None."""
        value = self._value(trainer)
        if value is None or trainer.world_size == 1:
            return value if value is None else float(value)
        return float(trainer.strategy.reduce(value.to(trainer.strategy.root_device, torch.double, copy=True)))

    def monitored(self, trainer: Trainer) -> tuple[str, str] | None:
        """Returns the key of the metric and whether its `min` or its `max` is best, once every callback knows what it
        measures; None if there is no metric.
        """
        key = self._key(trainer)
        return None if key is None else (key, self._mode(trainer) or "min")

    def rank(self, trainer: Trainer, value: float) -> tuple[bool, float]:
        """Returns what is smaller for better values; NaN is the worst."""
        return value != value, -value if self._mode(trainer) == "max" else value

    def _mode(self, trainer: Trainer) -> str | None:
        return directions_of(trainer).get(self._key(trainer) or "") if self.mode == "auto" else self.mode

    def _key(self, trainer: Trainer) -> str | None:
        if self.name != "auto":
            return self.name
        known = [*directions_of(trainer), *trainer.callback_metrics]  # in an order that a resumed training has, too
        return next((name for name in known if name.startswith("metric/fid_")), None)

    def _value(self, trainer: Trainer) -> torch.Tensor | None:
        key = self._key(trainer)
        return None if key is None else trainer.callback_metrics.get(key)


class EarlyStopping(GenerativeCallback):
    """Stops after `patience` consecutive measurements without a better value; `last.ckpt` is written as usual.

    Lightning's `EarlyStopping` checks at the end of epochs and mistakes an old value for a new one.

    Args:
        patience: number of measurements without a better value; null never stops.
        monitor: key of the metric; `auto` uses the FID.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.

    Raises:
        RefusedInput: `patience` is below 1, or nothing logs the metric.
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
        return self._monitor.state_key("EarlyStopping")

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.waited = state_dict["best_value"], state_dict["waited"]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._monitor.refuse_unmeasured(trainer)  # every callback knows by now what it measures

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.global_step == 0 and self._has_measured:  # a new training with the callback of an earlier one
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
