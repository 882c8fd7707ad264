"""The hooks that this package adds to Lightning's callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch import Callback, Trainer

if TYPE_CHECKING:
    from lit_gans.training.sampling import SamplingModule


class GenerativeCallback(Callback):
    """A Lightning callback with empty hooks around measurements and for the averaged generator.

    A subclass overrides the hooks that it needs. Callers loop over `trainer.callbacks` and skip other callbacks.
    """

    updates_average: bool = False  # whether the callback keeps `module.averaged_generator` up to date

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        """Called on every rank before a measurement begins; `description` names it for a person."""

    def on_measure_end(self, trainer: Trainer) -> None:
        """Called on every rank when the values of a measurement are in `trainer.callback_metrics`."""

    def gather_average(self, module: SamplingModule) -> None:
        """Called on every rank before the averaged generator of a sharded training is sampled or saved."""
