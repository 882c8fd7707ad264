"""Closes the runs of loggers. Otherwise, the next training run would log into the open Weights & Biases run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from lightning.pytorch.loggers import CometLogger, Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

logger = logging.getLogger(__name__)

_STEP = "trainer/global_step"  # Lightning's WandbLogger logs this value together with all other values


@rank_zero_only
def end_loggers(loggers: Iterable[Logger], failed: bool) -> None:
    """Closes the runs of loggers after training, when Lightning has finalized the loggers.

    Args:
        loggers: loggers that were used in training.
        failed: whether the training raised an error.
    """
    # Lightning imports the package of a logger only when the logger is first used
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    for training_logger in loggers:
        if isinstance(training_logger, WandbLogger) and wandb is not None:
            wandb.finish(exit_code=int(failed))
        elif isinstance(training_logger, CometLogger):
            training_logger.experiment.end()
    if mlflow is not None and mlflow.active_run() is not None:  # a callback can start an MLflow run
        mlflow.end_run("FAILED" if failed else "FINISHED")


@rank_zero_only
def end_earlier_training(loggers: Iterable[Logger]) -> None:
    """Finishes the open Weights & Biases run if a previous training run has logged to it.

    Otherwise, a new `WandbLogger` would log into the same run. A Weights & Biases run that the user has started for
    this training stays open.
    """
    wandb = sys.modules.get("wandb")
    if wandb is None or wandb.run is None or not any(isinstance(item, WandbLogger) for item in loggers):
        return
    if wandb.run.summary.get(_STEP) is not None:
        logger.info("finished the W&B run %s of a previous training: this training starts a new run", wandb.run.name)
        wandb.finish()
