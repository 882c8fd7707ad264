"""Hooks that this package adds to Lightning's callbacks."""

from __future__ import annotations

from collections.abc import Mapping

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.utilities.model_helpers import is_overridden

from lit_gans.training.attached import callbacks_of

_IN_AN_ITERATION = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
)


class GenerativeCallback(Callback):
    """Base class of callbacks, with empty hooks around measurements and for the averaged generator.

    Subclasses override the hooks that they need. Callers loop over `trainer.callbacks` and skip other callbacks.
    """

    updates_average: bool = False  # whether the callback updates `module.averaged_generator`
    directions: Mapping[str, str | None] = {}  # whether the `min` or the `max` of each key that it measures is best
    # Whether the callback reads the losses of every iteration from `trainer.callback_metrics`. Where no callback does,
    # losses are logged only in the iterations that loggers write.
    reads_losses: bool = True

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        """Called on every rank before a measurement begins; `description` is a readable name for it."""

    def on_measure_end(self, trainer: Trainer) -> None:
        """Called on every rank once the values of a measurement are in `trainer.callback_metrics`."""

    def gather_average(self, module: LightningModule) -> None:
        """Called on every rank before a sharded averaged generator is sampled or saved."""


def directions_of(trainer: Trainer) -> dict[str, str | None]:
    """Returns whether the `min` or the `max` of each measured key is best; None for neither."""
    callbacks = callbacks_of(trainer, GenerativeCallback)
    return {name: direction for callback in callbacks for name, direction in callback.directions.items()}


def announced(trainer: Trainer, module: LightningModule) -> list[str] | None:
    """Returns the keys that callbacks measure, or None where a module or callback that is neither of this package nor
    Lightning's may log any other.
    """
    others = [each for each in callbacks_of(trainer, Callback) if not _logs_known(each)]
    if others or not _is_of(module, "lit_gans"):
        return None
    return list(directions_of(trainer))


def _logs_known(callback: Callback) -> bool:
    """Whether a callback logs only what its `directions` have, or values of training such as throughput."""
    return _is_of(callback, "lit_gans", "lightning") and not isinstance(callback, LambdaCallback)


def _is_of(thing: object, *packages: str) -> bool:
    return type(thing).__module__.partition(".")[0] in packages


def reads_losses(callback: Callback) -> bool:
    """Returns whether a callback may read the losses of every iteration, which one without a hook in it cannot."""
    if isinstance(callback, GenerativeCallback):
        return callback.reads_losses
    return any(is_overridden(hook, callback, Callback) for hook in _IN_AN_ITERATION)
