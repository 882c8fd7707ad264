"""What a command has chosen by itself is said once its training begins, so that a refusal comes alone."""

from __future__ import annotations

import logging

from lightning.pytorch import Callback, LightningModule, Trainer

logger = logging.getLogger(__name__)


class Notices(Callback):
    """Logs sentences when the training begins, the first of a sweep.

    Args:
        notices: sentences, which are removed from the list.
    """

    def __init__(self, notices: list[str]) -> None:
        self.notices = notices

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        log(self.notices)


def log(notices: list[str]) -> None:
    """Logs sentences and removes them from the list."""
    while notices:
        logger.info("%s", notices.pop(0))
