"""Mistakes in manual optimization that Lightning does not report, or with an advice that does not help, and a callback
that counts iterations.
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
    'clip in the training step, before a step, self.clip_gradients(optimizer, VALUE, "norm"), or with'
    ' NetworkDeepSpeed(config={"gradient_clipping": VALUE})'
)
_IN_TRAINING_STEP = {
    "gradient_clip_val": _CLIP,
    "gradient_clip_algorithm": _CLIP,
    "accumulate_grad_batches": (
        "divide each loss by VALUE, run all backwards before a step but the last one in `with"
        " self.trainer.strategy.block_backward_sync():`, and step after the last one"
    ),
}


def refuse_automatic_arguments(module: LightningModule, trainer: Trainer) -> None:
    """Raises `RefusedInput` for arguments of the Trainer that only automatic optimization follows.

    Lightning raises an error for some of them that advises automatic optimization, which has one optimizer, and ignores
    the others. The error here says what a module with manual optimization does instead: what its mapping
    `instead_of_trainer` has for the name of the argument, where VALUE stands for the value.
    """
    if module.automatic_optimization or trainer.state.fn != TrainerFn.FITTING:
        return
    algorithm = trainer.gradient_clip_algorithm
    given = {
        "gradient_clip_val": trainer.gradient_clip_val,
        "gradient_clip_algorithm": None if algorithm is None else str(getattr(algorithm, "value", algorithm)),
        "accumulate_grad_batches": None if trainer.accumulate_grad_batches == 1 else trainer.accumulate_grad_batches,
    }
    used = [(f"Trainer({name}={value!r})", name, str(value)) for name, value in given.items() if value]
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(each, GradientAccumulationScheduler) for each in callbacks):
        used.append(("GradientAccumulationScheduler", "accumulate_grad_batches", "NUMBER"))
    for what, name, value in used:
        instead = getattr(module, "instead_of_trainer", _IN_TRAINING_STEP)[name].replace("VALUE", value)
        raise RefusedInput(
            f"{what} has no effect on {type(module).__name__}, whose training step runs its own backwards and steps:"
            f" leave it out, and {instead}."
        )


class CountIterations(Callback):
    """Makes `trainer.global_step` count batches in which an optimizer steps, and not the steps of every optimizer.

    Under manual optimization Lightning counts each optimizer's steps, so that `max_steps`, the axis of loggers and
    `every_n_train_steps` of `ModelCheckpoint` depend on the number of optimizers. List this callback first: those
    after it see the new count. A resumed training continues it.
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
    """Warns about what goes wrong silently under manual optimization, for any module and with Lightning's strategies.

    - A scheduler that is configured and never stepped.
    - `max_steps`, where `trainer.global_step` counts more steps than there are batches, see `CountIterations`.
    - Gradients that are clipped while they are scaled for fp16, see `NetworkScaling`.

    The strategies of this package warn about all of this by themselves.
    """

    def __init__(self) -> None:
        self._schedulers: list[tuple[LRScheduler, int]] = []
        self._first = self._first_batch = 0
        self._gradients: ScaledGradients | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        schedulers = (
            [] if pl_module.automatic_optimization else [each.scheduler for each in trainer.lr_scheduler_configs]
        )
        epochs = [(each, each.state_dict().get("last_epoch")) for each in schedulers]
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
            first = next((name for name, each in pl_module.named_parameters() if each is stepped[0]), "an optimizer")
            self._gradients.check(first, stepped)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps, batches = trainer.global_step - self._first, batch_index(trainer) - self._first_batch
        if steps == 0 or pl_module.automatic_optimization:
            return
        for scheduler, epoch in self._schedulers:
            if scheduler.state_dict().get("last_epoch") == epoch:
                rank_zero_warn(
                    f"a {type(scheduler).__name__} was configured and never stepped, so that the learning rate stayed"
                    " as it was: under manual optimization the module steps it, self.lr_schedulers().step()."
                )
        if trainer.max_steps > 0 and steps > batches:
            rank_zero_warn(
                f"max_steps={trainer.max_steps} counts the steps of every optimizer, {steps} in {batches} batches: with"
                " callbacks=[CountIterations()] of lit_gans.strategies.manual_optimization it counts batches."
            )
