"""What this package adds to Lightning's callbacks: hooks, and typed access to what a trainer has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

from lit_gans.checkpoints.locate import run_of
from lit_gans.common._compat.lightning import may_stop
from lit_gans.common.annotations import converts_numbers
from lit_gans.common.errors import RefusedInput, nearest

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


def is_last_iteration(trainer: Trainer) -> bool:
    """Returns whether the training ends with the current iteration, as far as is known by now.

    Called in a hook of an iteration, it does not know what a later hook will ask for by `trainer.should_stop`, such as
    Lightning's `Timer` of `max_time`. In `on_train_end` it knows all reasons.
    """
    if trainer.global_step == trainer.max_steps or (trainer.should_stop and may_stop(trainer)):
        return True
    last = trainer.max_epochs
    return last not in (None, -1) and trainer.current_epoch + trainer.is_last_batch >= last


def continues_run(trainer: Trainer) -> bool:
    """Returns whether a training continues the run in its folder; for `on_train_start`.

    It does if it resumes from a checkpoint of the run, or if this trainer has trained before.
    """
    if trainer.ckpt_path is None:
        return trainer.global_step > 0
    checkpoint, folder = Path(trainer.ckpt_path).resolve(), Path(trainer.default_root_dir).resolve()
    return folder in (checkpoint, run_of(checkpoint))


class GenerativeCallback(Callback):
    """Base class of callbacks, with empty hooks around measurements and for the averaged generator.

    Subclasses override the hooks that they need. Callers loop over `trainer.callbacks` and skip other callbacks.
    """

    updates_average: bool = False  # whether the callback updates `module.averaged_generator`
    # every key `metric/...` that the callback measures, and whether its `min` or its `max` is best; None for neither
    directions: Mapping[str, str | None] = {}
    # whether it reads the losses of every iteration from `trainer.callback_metrics`, which otherwise holds those of the
    # last row of the loggers; `module.losses` always holds those of the last iteration
    reads_logged: bool = False
    # resolved configuration of the run, which loggers receive; None unless the callback knows it
    hyperparameters: Mapping[str, Any] | None = None
    left_out: Mapping[str, str] = {}  # why a score that was asked for is not measured, by name
    conflict: str = ""  # what two callbacks of this kind would both do; empty if a trainer may have several

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = converts_numbers(cls.__init__)  # type: ignore[method-assign]

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether the callback loads a checkpoint's state under another key than its `state_key`.

        By default, it loads the state that earlier versions stored under the name of the class.
        """
        return key == type(self).__qualname__

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        """Called on every rank before a measurement begins; `description` is a readable name for it."""

    def on_measure_end(self, trainer: Trainer) -> None:
        """Called on every rank once the values of a measurement are in `trainer.callback_metrics`."""

    def gather_average(self, module: LightningModule) -> None:
        """Called on every rank before a sharded averaged generator is sampled or saved."""


def reads_every_loss(trainer: Trainer) -> bool:
    """Returns whether a callback may read the logged losses of every iteration, as those of other projects may."""
    everyone = callbacks_of(trainer, Callback)
    return any(not isinstance(each, GenerativeCallback) or each.reads_logged for each in everyone)


def directions_of(trainer: Trainer) -> dict[str, str | None]:
    """Returns whether the `min` or the `max` of each measured key is best; None for neither."""
    callbacks = callbacks_of(trainer, GenerativeCallback)
    return {name: direction for callback in callbacks for name, direction in callback.directions.items()}


def refuse_unmeasured(trainer: Trainer, setting: str, key: str) -> None:
    """Raises `RefusedInput` for a setting whose key `metric/...` no callback names in its `directions`."""
    known = directions_of(trainer)
    if key in known:
        return
    advice = nearest(key, known) if known else "choose what is measured with metrics=."
    reasons = [each.left_out for each in callbacks_of(trainer, GenerativeCallback)]
    left_out = [f"{name} is left out: {reason}" for each in reasons for name, reason in each.items()]
    raise RefusedInput(" ".join([f"{setting}: nothing measures it; {advice}", *left_out]))
