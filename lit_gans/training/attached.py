"""Typed access to a trainer's callbacks and data, which Lightning sets where type checkers cannot see it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from lightning.pytorch import Callback, Trainer

Kind = TypeVar("Kind", bound=Callback)


def callbacks_of(trainer: Trainer, kind: type[Kind]) -> list[Kind]:
    """Returns the trainer's callbacks of a given class, in order."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, kind)]


def data_of(trainer: Trainer) -> Any:
    """Returns the datamodule, or None; check it against the protocols of `lit_gans.data.contracts`."""
    return trainer.datamodule  # type: ignore[attr-defined]


def num_iterations(trainer: Trainer) -> int:
    """Returns the number of generator iterations of a training, 0 if it has no end."""
    total = trainer.estimated_stepping_batches
    return int(total) if math.isfinite(total) else 0


def is_logged(trainer: Trainer) -> bool:
    """Returns whether loggers write this iteration, or it is the last."""
    every, step = int(trainer.log_every_n_steps), trainer.global_step  # type: ignore[attr-defined]
    due = bool(trainer.loggers) and every > 0 and step % every == 0
    return due or trainer.is_last_batch or step == trainer.max_steps
