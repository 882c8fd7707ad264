"""Trainings in which Lightning's profiler and its hooks around backward and optimizer step do nothing, so that they
can be left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from lit_gans.training.attached import callbacks_of

Step = TypeVar("Step", bound=Callable[..., Any])

_HOOKS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")
_METHODS = ("on_before_backward", "on_after_backward", "backward", "manual_backward")


class Unprofiled(PassThroughProfiler):
    """Profiles nothing, as Lightning's default, but without a generator around each hook of an iteration."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        """Returns a context that does nothing."""
        return self._nothing


def inspected_once(step: Step) -> Step:
    """Stores the signature of a `training_step`, which Lightning inspects in every iteration."""
    step.__signature__ = inspect.signature(step)  # type: ignore[attr-defined]
    return step


def leave_out_profiler(trainer: Trainer) -> None:
    """Replaces Lightning's default profiler, which records nothing, by `Unprofiled`; leaves any other."""
    if type(trainer.profiler) is PassThroughProfiler:  # type: ignore[attr-defined]  # set by a connector
        trainer.profiler = Unprofiled()  # type: ignore[attr-defined]


def steps_plainly(trainer: Trainer, module: LightningModule, base: type[LightningModule]) -> bool:
    """Returns whether Lightning's backward and optimizer step only call torch's.

    That is the case in one process, without a gradient scaler and a profiler, if neither a callback nor the module has
    a hook around them; `leave_out_profiler` comes first. Looked up once: each of Lightning's calls asks every callback
    in every step.

    Args:
        trainer: the trainer, at the start of the training.
        module: the module to train.
        base: the class whose own `on_before_optimizer_step` the caller runs itself.
    """
    plugin = trainer.precision_plugin
    unscaled = type(plugin) is Precision or (type(plugin) is MixedPrecision and plugin.scaler is None)
    if not unscaled or type(trainer.strategy) is not SingleDeviceStrategy:
        return False
    if type(trainer.profiler) is not Unprofiled:  # type: ignore[attr-defined]
        return False
    if any(is_overridden(hook, each, Callback) for each in callbacks_of(trainer, Callback) for hook in _HOOKS):
        return False
    own = any(is_overridden(method, module, LightningModule) for method in _METHODS)
    return not own and not is_overridden("on_before_optimizer_step", module, base)


def count_step(trainer: Trainer) -> None:
    """Counts a generator iteration in `trainer.global_step`, as Lightning does around a step of its own wrapper."""
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    steps.increment_ready()
    steps.increment_completed()
