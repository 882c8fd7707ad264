"""The end of loggers: Lightning leaves a run of Weights & Biases open, into which the next training would log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from lightning.pytorch.loggers import CometLogger, Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

logger = logging.getLogger(__name__)

_STEP = "trainer/global_step"  # logged by Lightning's WandbLogger with every value


@rank_zero_only
def end_loggers(loggers: Iterable[Logger], failed: bool) -> None:
    """Ends the runs of a training's loggers, which Lightning has finalized.

    Args:
        loggers: loggers of the training.
        failed: whether the training raised an error.
    """
    wandb, mlflow = (
        sys.modules.get("wandb"),
        sys.modules.get("mlflow"),
    )  # each is imported by the first training with it
    for each in loggers:
        if isinstance(each, WandbLogger) and wandb is not None:
            wandb.finish(exit_code=int(failed))
        elif isinstance(each, CometLogger):
            each.experiment.end()
    if mlflow is not None and mlflow.active_run() is not None:  # begun by a callback
        mlflow.end_run("FAILED" if failed else "FINISHED")


@rank_zero_only
def end_earlier_training(loggers: Iterable[Logger]) -> None:
    """Finishes the open run of Weights & Biases if a training has logged to it, since a new `WandbLogger` would log
    into the same run. A run that a user has begun for this training stays open.
    """
    wandb = sys.modules.get("wandb")
    if wandb is None or wandb.run is None or not any(isinstance(each, WandbLogger) for each in loggers):
        return
    if wandb.run.summary.get(_STEP) is not None:
        logger.info("finished the W&B run %s of an earlier training: this training begins another", wandb.run.name)
        wandb.finish()
