"""The last and the best checkpoint, written only at iteration boundaries, also when the run is interrupted."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint

from lit_gans.callbacks.monitor import Monitor
from lit_gans.callbacks.throughput import paused
from lit_gans.common.atomic import sweep
from lit_gans.common.errors import RefusedInput


class Checkpoint(LightningCheckpoint):
    """Writes `checkpoints/last.ckpt` and `checkpoints/best.ckpt` under the run folder.

    Lightning's `ModelCheckpoint` counts every optimizer step under manual optimization and warns at each save; this
    callback counts generator iterations. On Ctrl-C or SIGTERM, the current iteration finishes, `last.ckpt` is written
    and the training stops; a second signal stops the process immediately.

    Args:
        every_n_train_steps: number of generator iterations between two writes of the last checkpoint.
        monitor: key of the metric that selects the best checkpoint; `auto` uses the FID if it is measured, null writes
            no best checkpoint.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.

    Raises:
        RefusedInput: `every_n_train_steps` is below 1, or no callback measures the metric.
    """

    def __init__(
        self,
        every_n_train_steps: int = 100,
        monitor: str | None = "auto",
        mode: Literal["auto", "min", "max"] = "auto",
    ) -> None:
        if every_n_train_steps < 1:
            raise RefusedInput(f"every_n_train_steps={every_n_train_steps} must be at least 1.")
        self.every_n_train_steps, self._monitor = every_n_train_steps, Monitor(monitor, mode)
        self.best_value: float | None = None
        self.best_step = 0
        self.received_signal: int | None = None
        self._handlers: dict[int, Any] = {}

    @staticmethod
    def folder(trainer: Trainer) -> Path:
        """Returns the checkpoint folder of a trainer."""
        return Path(trainer.default_root_dir) / "checkpoints"

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_value, self.best_step = state_dict["best_value"], state_dict["best_step"]

    # ---- signals

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.received_signal = None
        self._monitor.start(trainer)
        if trainer.is_global_zero:
            sweep(self.folder(trainer), "*.ckpt")
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._handlers[number] = signal.signal(number, self._receive)
            except ValueError:  # not in the main thread, which handles the signals
                break

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received_signal = number
        self._restore_handlers()  # a second signal takes effect immediately

    def _restore_handlers(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore_handlers()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore_handlers()

    # ---- writing

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._asked_to_stop(trainer):
            trainer.should_stop = True
        if self._improved(trainer):
            self._write(trainer, "best")
        if trainer.global_step % self.every_n_train_steps == 0 or self._is_last(trainer):
            self._write(trainer, "last")

    def _asked_to_stop(self, trainer: Trainer) -> bool:
        """Returns the same value on every rank, so that all ranks stop at the same iteration."""
        asked = self.received_signal is not None
        return trainer.strategy.reduce_boolean_decision(asked, all=False) if trainer.world_size > 1 else asked

    def _is_last(self, trainer: Trainer) -> bool:
        # not at the end of the fit, when Lightning has already closed the epoch that a resumed run continues
        ends = trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
        return trainer.should_stop or ends or trainer.global_step == trainer.max_steps

    def _improved(self, trainer: Trainer) -> bool:
        value = self._monitor.new(trainer)
        if value is None or not self._monitor.better(trainer, value, self.best_value):
            return False
        self.best_value, self.best_step = value, trainer.global_step
        return True

    def _write(self, trainer: Trainer, name: str) -> None:
        with paused(trainer):
            trainer.save_checkpoint(self.folder(trainer) / f"{name}.ckpt")
