"""Checks for mistakes under manual optimization, and a callback that makes the Trainer count iterations.

Lightning does not report these mistakes, or reports them with unsuitable advice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from lit_gans.common._compat.lightning import batch_index, set_steps
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import (
    Callback,
    GradientAccumulationScheduler,
    LightningModule,
    MixedPrecision,
    Trainer,
    TrainerFn,
    rank_zero_warn,
)
from lit_gans.strategies.grad_scaling import NetworkScaling, ScaledGradients
from lit_gans.strategies.module_networks import parameters_of

_CLIP = (
    'call self.clip_gradients(optimizer, VALUE, "norm") in the training step before each optimizer step, or use'
    ' NetworkDeepSpeed(config={"gradient_clipping": VALUE})'
)
_IN_TRAINING_STEP = {
    "gradient_clip_val": _CLIP,
    "gradient_clip_algorithm": _CLIP,
    "accumulate_grad_batches": (
        "divide each loss by VALUE, run all backward passes except for the last one in `with"
        " self.trainer.strategy.block_backward_sync():`, and step after the last backward pass"
    ),
}


def refuse_automatic_arguments(module: LightningModule, trainer: Trainer) -> None:
    """Raises `RefusedInput` for arguments of the Trainer that have an effect only under automatic optimization.

    Lightning ignores some of these arguments. For the other arguments, it raises an error that recommends automatic
    optimization, which supports only one optimizer. The error raised here says what to do instead under manual
    optimization. A module can define this advice in the attribute `instead_of_trainer`, which maps the names of the
    arguments to advice. In the advice, VALUE is replaced by the value of the argument.
    """
    if module.automatic_optimization or trainer.state.fn != TrainerFn.FITTING:
        return
    algorithm = trainer.gradient_clip_algorithm
    arguments = {
        "gradient_clip_val": trainer.gradient_clip_val,
        "gradient_clip_algorithm": None if algorithm is None else str(getattr(algorithm, "value", algorithm)),
        "accumulate_grad_batches": None if trainer.accumulate_grad_batches == 1 else trainer.accumulate_grad_batches,
    }
    unsupported = [(f"Trainer({name}={value!r})", name, str(value)) for name, value in arguments.items() if value]
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, GradientAccumulationScheduler) for callback in callbacks):
        unsupported.append(("GradientAccumulationScheduler", "accumulate_grad_batches", "NUMBER"))
    for what, name, value in unsupported:
        advice = getattr(module, "instead_of_trainer", _IN_TRAINING_STEP)[name].replace("VALUE", value)
        raise RefusedInput(
            f"{what} has no effect on {type(module).__name__}, whose training step runs the backward passes and"
            f" optimizer steps itself: leave it out, and {advice}."
        )


class CountIterations(Callback):
    """Makes `trainer.global_step` count the batches in which an optimizer steps, instead of all optimizer steps.

    Under manual optimization, Lightning counts the steps of all optimizers. `max_steps` and `every_n_train_steps` of
    `ModelCheckpoint` therefore depend on the number of optimizers. List this callback first,
    because only the callbacks after it see the corrected count. A resumed run continues the count.
    """

    def __init__(self) -> None:
        self._before = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._before = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if pl_module.automatic_optimization:
            return
        set_steps(trainer, min(trainer.global_step, self._before + 1))


class WatchManualOptimization(Callback):
    """Warns about silent mistakes under manual optimization. Works with any module and with Lightning's strategies.

    It warns in the following cases:

    - A learning rate scheduler is configured, but never stepped.
    - `max_steps` is set, and `trainer.global_step` counts more steps than batches, see `CountIterations`.
    - Gradients are clipped while they are scaled for fp16, see `NetworkScaling`.

    The strategies of this package issue the same warnings without this callback.
    """

    def __init__(self) -> None:
        self._schedulers: list[tuple[LRScheduler, int]] = []
        self._first = self._first_batch = 0
        self._gradients: ScaledGradients | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        schedulers = (
            [] if pl_module.automatic_optimization else [config.scheduler for config in trainer.lr_scheduler_configs]
        )
        epochs = [(scheduler, scheduler.state_dict().get("last_epoch")) for scheduler in schedulers]
        self._schedulers = [(scheduler, epoch) for scheduler, epoch in epochs if epoch is not None]
        self._first, self._first_batch = trainer.global_step, batch_index(trainer)
        plugin = trainer.precision_plugin
        scales = isinstance(plugin, MixedPrecision) and plugin.scaler is not None
        if scales and not isinstance(plugin, NetworkScaling) and not pl_module.automatic_optimization:
            self._gradients = ScaledGradients()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._gradients is not None:
            self._gradients.note(pl_module.parameters())

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self._gradients is not None:
            stepped = parameters_of(optimizer)
            first = next((name for name, p in pl_module.named_parameters() if p is stepped[0]), "an optimizer")
            self._gradients.check(first, stepped)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps, batches = trainer.global_step - self._first, batch_index(trainer) - self._first_batch
        if steps == 0 or pl_module.automatic_optimization:
            return
        for scheduler, epoch in self._schedulers:
            if scheduler.state_dict().get("last_epoch") == epoch:
                rank_zero_warn(
                    f"a {type(scheduler).__name__} was configured and never stepped, so that the learning rate did not"
                    " change: under manual optimization, the module must call self.lr_schedulers().step()."
                )
        if trainer.max_steps > 0 and steps > batches:
            rank_zero_warn(
                f"max_steps={trainer.max_steps} counts the steps of every optimizer, {steps} in {batches} batches: to"
                " count batches, add callbacks=[CountIterations()] from lit_gans.strategies.manual_optimization."
            )
