"""Base class of this package's callbacks, with additional hooks, and typed access to a trainer's attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

from lit_gans.checkpoints.locate import run_of
from lit_gans.common._compat.lightning import may_stop
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, nearest

Kind = TypeVar("Kind", bound=Callback)


def attached_trainer(module: LightningModule) -> Trainer | None:
    """Returns the trainer that a module is attached to, or None."""
    try:
        return module.trainer
    except RuntimeError:
        return None


def callbacks_of(trainer: Trainer, kind: type[Kind]) -> list[Kind]:
    """Returns the trainer's callbacks that are instances of a class, in order."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, kind)]


def data_of(trainer: Trainer) -> Any:
    """Returns the datamodule, or None. Callers check it against the protocols of `lit_gans.data.contracts`."""
    return trainer.datamodule  # type: ignore[attr-defined]


def num_iterations(trainer: Trainer) -> int:
    """Returns the total number of generator iterations of the training run, or 0 if the run has no end."""
    total = trainer.estimated_stepping_batches
    return int(total) if math.isfinite(total) else 0


def is_last_iteration(trainer: Trainer) -> bool:
    """Returns whether the training ends with the current iteration, as far as the trainer knows.

    If this function is called in a hook of an iteration, a later hook can still stop the training with
    `trainer.should_stop`. Lightning's `Timer` does this for `max_time`. In `on_train_end`, the result is certain.
    """
    if trainer.global_step == trainer.max_steps or (trainer.should_stop and may_stop(trainer)):
        return True
    last = trainer.max_epochs
    return last not in (None, -1) and trainer.current_epoch + trainer.is_last_batch >= last


def continues_run(trainer: Trainer) -> bool:
    """Returns whether the trainer continues the run in its folder. Must be called in `on_train_start`.

    The trainer continues the run if it resumes from a checkpoint of the run, or if it has trained before.
    """
    if trainer.ckpt_path is None:
        return trainer.global_step > 0
    checkpoint, folder = Path(trainer.ckpt_path).resolve(), Path(trainer.default_root_dir).resolve()
    return folder in (checkpoint, run_of(checkpoint))


class GenerativeCallback(Callback):
    """Base class of callbacks, with empty hooks for measurements and for the averaged generator.

    Subclasses override the hooks that they need. Callers iterate over `trainer.callbacks` and skip other callbacks.
    """

    updates_average: bool = False  # whether the callback updates `module.averaged_generator`
    samples_average: bool = False  # whether the callback samples `module.averaged_generator`, if there is one
    # maps each measured key `metric/...` to `min` or `max`, whichever is better, or to None if neither is better
    directions: Mapping[str, str | None] = {}
    measured_at: int = -1  # iteration of the last measurement
    protocol: Mapping[str, Any] = {}  # settings that the measured values depend on; empty if nothing was measured
    # whether the callback reads the losses of every iteration from `trainer.callback_metrics`. If no callback does,
    # these losses are only updated when loggers write a row. `module.losses` always holds the last iteration's losses.
    reads_logged: bool = False
    # resolved configuration of the run, which is passed to loggers; None if the callback does not know it
    hyperparameters: Mapping[str, Any] | None = None
    left_out: Mapping[str, str] = {}  # maps each requested score that is not measured to the reason
    # what two callbacks of this class would both do, for an error message; empty if a trainer can have several of them
    conflict: str = ""
    # class of the modules that the callback supports; `setup` refuses others, so overrides must call it
    module_class: type[LightningModule] = LightningModule

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = converts_arguments(cls.__init__)  # type: ignore[method-assign]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, self.module_class):
            raise RefusedInput(
                f"{type(self).__name__} supports only modules of {self.module_class.__name__}, such as DCGAN, but this"
                f" module is of {type(pl_module).__name__}: remove {type(self).__name__} from the callbacks."
            )

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether the callback loads a state of a checkpoint whose key differs from its `state_key`."""
        return False

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        """Called on every rank before a measurement begins; `description` is a readable name of the measurement."""

    def on_measure_end(self, trainer: Trainer) -> None:
        """Called on every rank when the values of a measurement are in `trainer.callback_metrics`."""

    def gather_average(self, module: LightningModule) -> None:
        """Called on every rank before a sharded averaged generator is sampled or saved."""


def reads_every_loss(trainer: Trainer) -> bool:
    """Returns whether any callback might read the logged losses of every iteration.

    This is assumed of third-party callbacks.
    """
    callbacks = callbacks_of(trainer, Callback)
    return any(not isinstance(callback, GenerativeCallback) or callback.reads_logged for callback in callbacks)


def directions_of(trainer: Trainer) -> dict[str, str | None]:
    """Maps each measured key to `min` or `max`, whichever is better, or to None if neither is better."""
    callbacks = callbacks_of(trainer, GenerativeCallback)
    return {name: direction for callback in callbacks for name, direction in callback.directions.items()}


def refuse_unmeasured(trainer: Trainer, setting: str, key: str) -> None:
    """Raises `RefusedInput` if a setting refers to a key `metric/...` that no callback measures."""
    known = directions_of(trainer)
    if key in known:
        return
    advice = nearest(key, known) if known else "choose what is measured with metrics=."
    reasons = [callback.left_out for callback in callbacks_of(trainer, GenerativeCallback)]
    left_out = [f"{name} is left out: {reason}" for by_name in reasons for name, reason in by_name.items()]
    raise RefusedInput(" ".join([f"{setting}: nothing measures it; {advice}", *left_out]))
