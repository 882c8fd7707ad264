"""Checks before the first step, which reject settings that Lightning would silently ignore or change."""

from __future__ import annotations

import inspect
import os
import sys
from types import CodeType
from typing import Any

from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from lit_gans.common._compat.lightning import finds_unused_parameters
from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import as_size
from lit_gans.data.class_names import class_names_of
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.manual_optimization import refuse_automatic_arguments
from lit_gans.training.callback import GenerativeCallback, callbacks_of, data_of

_CLIP = (
    "use model.clip_gradients=VALUE, in Python the model's argument clip_gradients=VALUE, the maximum norm of each"
    " network's gradient"
)
INSTEAD_OF_TRAINER = {  # see `refuse_automatic_arguments`
    "gradient_clip_val": _CLIP,
    "gradient_clip_algorithm": _CLIP.replace("VALUE", "NORM"),
    "accumulate_grad_batches": (
        "use model.accumulate_gradients=VALUE, in Python the model's argument accumulate_gradients=VALUE"
    ),
}

_HOOKS = {
    "setup",
    "on_fit_start",
    "on_train_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_optimizer_step",
    "on_train_end",
    "on_save_checkpoint",
    "on_load_checkpoint",
}


def refuse_arguments(module: LightningModule, trainer: Trainer) -> None:
    """Raises `RefusedInput` for arguments of the Trainer that GANs do not support, before Lightning checks them."""
    refuse_automatic_arguments(module, trainer)
    cli = sys.modules.get("lightning.pytorch.cli")  # imported by every script that uses LightningCLI
    saves = () if cli is None else callbacks_of(trainer, cli.SaveConfigCallback)
    ignored = any(callback.config.get("lr_scheduler") for callback in saves)
    if "configure_optimizers" in vars(module) or ignored:  # LightningCLI ignores --lr_scheduler without --optimizer
        raise RefusedInput(
            f"{type(module).__name__} has an optimizer for each network, but --optimizer and --lr_scheduler of"
            " LightningCLI configure a single optimizer: use --model.generator_optimizer NAME and"
            " --model.discriminator_optimizer NAME, and their schedule."
        )
    for name in ("val_check_interval", "check_val_every_n_epoch"):
        value = getattr(trainer, name)
        if value not in (None, 1) and not is_overridden("validation_step", module):
            raise RefusedInput(
                f"Trainer({name}={value!r}) has no effect on {type(module).__name__}, which has no validation_step:"
                " leave it out. To set how often scores are measured, use metrics.every_n_steps=NUMBER, in Python"
                " GenerativeMetrics(every_n_steps=NUMBER)."
            )


def refuse_lost_hooks(cls: type, base: type) -> None:
    """Raises `RefusedInput` if a class overrides a hook in which its base class works, without calling it.

    These hooks are empty in Lightning, which therefore does not ask for the call. Without the call, the code of a hook
    does not contain the hook's name.
    """
    for parent in cls.__mro__[: cls.__mro__.index(base)]:
        for name in _HOOKS & vars(parent).keys():
            function = inspect.unwrap(vars(parent)[name])
            if inspect.isfunction(function) and name not in _names_in(function.__code__):
                parameters = [*inspect.signature(function).parameters][1:]
                raise RefusedInput(
                    f"{parent.__name__}.{name} must call super().{name}({', '.join(parameters)}), because"
                    f" {base.__name__} works in this hook."
                )


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def refuse_trainer(module: LightningModule, trainer: Trainer) -> None:
    """Raises `RefusedInput` if the device, precision, processes, data, callbacks and module are incompatible.

    If the data have `num_classes`, `image_size` or `channels`, these must equal the module's values. Two callbacks must
    neither measure the same key nor write the same files. A callback that samples the averaged generator must come
    after the callback that updates it.
    """
    _refuse_precision(trainer.strategy.root_device.type, str(trainer.precision))
    _refuse_processes(trainer)
    _refuse_data(module, data_of(trainer))
    _refuse_callbacks(trainer)
    _refuse_order(trainer)


def _refuse_callbacks(trainer: Trainer) -> None:
    conflicts: dict[str, str] = {}
    for callback in callbacks_of(trainer, GenerativeCallback):
        name = type(callback).__name__
        measured = {f"measure {key}: keep one of them, or change its scores": name for key in callback.directions}
        for conflict in [*measured, *([f"{callback.conflict}: keep one of them"] if callback.conflict else [])]:
            if conflict in conflicts:
                raise RefusedInput(f"two callbacks, {conflicts[conflict]} and {name}, would both {conflict}.")
            conflicts[conflict] = name


def _refuse_order(trainer: Trainer) -> None:
    sampling = ""
    for callback in callbacks_of(trainer, GenerativeCallback):
        name = type(callback).__name__
        if callback.updates_average and sampling:
            raise RefusedInput(
                f"callbacks: {name} must come before {sampling}, which would otherwise sample the averaged generator of"
                f" the previous iteration: callbacks=[{name}(...), {sampling}(...)]."
            )
        sampling = name if callback.samples_average else sampling


def _refuse_precision(device: str, precision: str) -> None:
    if precision.startswith("16") and device != "cuda":
        raise RefusedInput(
            f"precision=fp16 ({precision}) needs a CUDA device, but the device is {device}, where Lightning would"
            " silently compute in bf16: use precision=bf16 or precision=fp32."
        )
    if precision in ("bf16-true", "16-true") or precision.startswith("transformer-engine"):
        raise RefusedInput(
            f"precision={precision} stores the weights in less than float32, which loses small updates of optimizers"
            " and averages: use precision=bf16 (bf16-mixed) or fp16, which compute in half precision but keep float32"
            " weights."
        )


def _refuse_processes(trainer: Trainer) -> None:
    strategy = trainer.strategy
    if (
        isinstance(strategy, DDPStrategy)
        and not isinstance(strategy, NetworkStrategy)
        and not finds_unused_parameters(strategy)
    ):
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices} uses Lightning's own DDP, which would wait for the gradients of"
            " frozen networks: use strategy=ddp, in Python Trainer(strategy=NetworkDDP())."
        )
    launcher, num_processes = _launched()
    if num_processes > 1 and trainer.world_size == 1:
        raise RefusedInput(
            f"{launcher} started {num_processes} processes, but each would train independently: use strategy=ddp"
            f" with trainer.devices x trainer.num_nodes = {num_processes}."
        )


def _launched() -> tuple[str, int]:
    """Returns the name of the launcher that started this process, and the number of processes."""
    if TorchElasticEnvironment.detect():
        return "torchrun", int(os.environ["WORLD_SIZE"])
    if SLURMEnvironment.detect():
        return "SLURM", int(os.environ["SLURM_NTASKS"])
    return "nobody", 1


def _refuse_data(module: Any, data: object) -> None:
    theirs = getattr(data, "num_classes", module.num_classes)
    if module.num_classes and theirs != module.num_classes:
        raise RefusedInput(
            f"the model is conditioned on num_classes={module.num_classes}, but the data has {theirs} classes:"
            " they must be equal; num_classes=0 trains without classes."
        )
    names = class_names_of(data)
    if module.num_classes and names and len(names) != module.num_classes:
        raise RefusedInput(
            f"the data has {len(names)} class_names, but {module.num_classes} classes: name each class, or none."
        )
    for name in ("image_size", "channels"):
        theirs, ours = getattr(data, name, getattr(module, name)), getattr(module, name)
        theirs = as_size(theirs) if name == "image_size" else theirs
        if theirs != ours:
            raise RefusedInput(f"the data has {name}={theirs}, but the model has {name}={ours}: they must be equal.")
