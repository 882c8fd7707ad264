"""Counts of epochs that stay right over any number of resumed runs."""

from __future__ import annotations

from lightning.pytorch import Trainer


def begin_epoch_after_resume(trainer: Trainer) -> None:
    """Counts the epoch that a run begins with if its checkpoint was saved after the last batch of the epoch before.

    Lightning then closes the old epoch, but does not count the new one as begun (`FitLoop.on_advance_start`). All later
    checkpoints of that run have one epoch too few, and a run that resumes from one of them would begin its epoch anew,
    on images that it has already seen. No issue found.
    """
    loop = trainer.fit_loop
    progress, end = loop.epoch_progress, trainer.max_epochs
    closed = loop.restarted_mid_epoch and progress.total.ready == progress.total.completed
    if closed and (end in (None, -1) or trainer.current_epoch < end):
        progress.increment_ready()
        progress.increment_started()
