"""Hooks that this package adds to Lightning's callbacks."""

from __future__ import annotations

from collections.abc import Mapping

from lightning.pytorch import Callback, LightningModule, Trainer


class GenerativeCallback(Callback):
    """Base class of callbacks, with empty hooks around measurements and for the averaged generator.

    Subclasses override the hooks that they need. Callers loop over `trainer.callbacks` and skip other callbacks.
    """

    updates_average: bool = False  # whether the callback updates `module.averaged_generator`
    directions: Mapping[str, str | None] = {}  # whether the `min` or the `max` of each key that it measures is best

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        """Called on every rank before a measurement begins; `description` is a readable name for it."""

    def on_measure_end(self, trainer: Trainer) -> None:
        """Called on every rank once the values of a measurement are in `trainer.callback_metrics`."""

    def gather_average(self, module: LightningModule) -> None:
        """Called on every rank before a sharded averaged generator is sampled or saved."""
