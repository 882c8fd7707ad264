"""What Lightning leaves to manual optimization without a word: the schedulers' steps, and the count of iterations."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn


class CountIterations(Callback):
    """Makes `trainer.global_step` count batches in which an optimizer steps, and not the steps of every optimizer.

    Under manual optimization Lightning counts each optimizer's steps, so that `max_steps`, the axis of loggers and
    `every_n_train_steps` of `ModelCheckpoint` depend on the number of optimizers. List this callback first: those
    after it see the new count. A resumed training continues it.
    """

    def __init__(self) -> None:
        self._before = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._before = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if pl_module.automatic_optimization:
            return
        progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
        progress.total.ready = progress.total.completed = min(trainer.global_step, self._before + 1)


class SchedulerWatch:
    """Notes the schedulers' epochs at the start of a training, to warn at its end about those that never stepped."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._first = trainer, trainer.global_step
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._epochs = [(each, each.state_dict().get("last_epoch")) for each in schedulers]

    def warn(self) -> None:
        """Warns about schedulers with an unchanged epoch, if an optimizer has stepped."""
        if self._trainer.global_step == self._first:
            return
        for scheduler, epoch in self._epochs:
            if epoch is not None and scheduler.state_dict().get("last_epoch") == epoch:
                rank_zero_warn(
                    f"a {type(scheduler).__name__} was configured and never stepped, so that the learning rate stayed"
                    " as it was: under manual optimization the module steps it, self.lr_schedulers().step()."
                )
