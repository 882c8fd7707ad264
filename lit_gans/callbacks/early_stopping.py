"""Ends a training whose measured value gets no better."""

from __future__ import annotations

from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.measurement import Monitor
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback


class EarlyStopping(GenerativeCallback):
    """Stops after `patience` measurements in a row without a better value; `last.ckpt` is written as at any end.

    Lightning's looks at the ends of epochs and takes an old value for a new one; this one looks at measurements.

    Args:
        patience: measurements without a better value; null never stops.
        monitor: the value; `auto` is the FID.
        mode: whether the best is the smallest or the largest value; `auto` is what the metric's own scale says.

    Raises:
        RefusedInput: `patience` is below 1, or nothing measures the value.
    """

    def __init__(
        self, patience: int | None = None, monitor: str = "auto", mode: Literal["auto", "min", "max"] = "auto"
    ) -> None:
        if patience is not None and patience < 1:
            raise RefusedInput(f"patience={patience} must be at least 1, or null.")
        self.patience, self._monitor = patience, Monitor(monitor, mode)
        self.best_value: float | None = None
        self.waited = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.waited = state_dict["best_value"], state_dict["waited"]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.patience is not None:
            self._monitor.refuse_unmeasured(trainer)  # every measurement has made its first by now

    def on_measure_end(self, trainer: Trainer) -> None:
        value = None if self.patience is None else self._monitor.new(trainer)
        if value is None:
            return
        if self._monitor.better(trainer, value, self.best_value):
            self.best_value, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
