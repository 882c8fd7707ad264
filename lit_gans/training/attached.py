"""Typed access to a trainer's callbacks and data, which Lightning sets where type checkers cannot see it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

Kind = TypeVar("Kind", bound=Callback)


def attached_trainer(module: LightningModule) -> Trainer | None:
    """Returns the trainer that a module is attached to, or None."""
    try:
        return module.trainer
    except RuntimeError:
        return None


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
