"""Early stopping when a measured value stops improving."""

from __future__ import annotations

from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.monitor import Monitor
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback


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
        if patience is not None and patience < 1:
            raise RefusedInput(f"patience={patience} must be at least 1, or null.")
        self.patience, self._monitor = patience, Monitor(monitor, mode)
        self.reads_losses = patience is not None and self._monitor.reads_losses
        self.best_value: float | None = None
        self.waited = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.waited = state_dict["best_value"], state_dict["waited"]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and self.patience is not None:
            self._monitor.refuse_unknown(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.patience is not None:
            self._monitor.refuse_unmeasured(trainer)  # every callback has measured at least once by now

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.patience is not None:
            self._monitor.refuse_unlogged(trainer)

    def on_measure_end(self, trainer: Trainer) -> None:
        if self.patience is None:
            return
        value = self._monitor.new(trainer)
        if value is None:
            return
        if self._monitor.better(trainer, value, self.best_value):
            self.best_value, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
