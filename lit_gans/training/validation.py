"""Checks of the training loop: settings that would fail late or silently misbehave raise before the first step."""

from __future__ import annotations

import os
from typing import Protocol, runtime_checkable

import torch
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from lit_gans.common._compat.lightning import finds_unused_parameters
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.training.attached import data_of
from lit_gans.training.schedules import Number, ends

_LARGEST_WEIGHT = 1e6  # of a loss term; a larger one is most likely a typo


@runtime_checkable
class Settings(Protocol):
    """Attributes of a module that `refuse_settings` and `refuse_trainer` read."""

    image_size: int
    channels: int
    latent_dim: int
    n_critic: int
    generator_batch_multiple: int
    accumulate_gradients: int
    clip_gradients_to: float | None
    r1_gamma: Number
    r2_gamma: Number
    r1_every: int
    num_classes: int


@runtime_checkable
class HasClasses(Protocol):
    """Data with classes."""

    num_classes: int


@runtime_checkable
class HasSize(Protocol):
    """Data whose images all have the same size."""

    image_size: int
    channels: int


def refuse_settings(module: Settings) -> None:
    """Raises `RefusedInput` if a setting of the module is invalid."""
    counts = {
        "image_size": module.image_size,
        "channels": module.channels,
        "latent_dim": module.latent_dim,
        "n_critic": module.n_critic,
        "generator_batch_multiple": module.generator_batch_multiple,
        "accumulate_gradients": module.accumulate_gradients,
        "r1_every": module.r1_every,
    }
    for name, value in counts.items():
        if value < 1:
            raise RefusedInput(f"{name}={value} must be at least 1.")
    clip = module.clip_gradients_to
    if clip is not None and not 0 < clip < float("inf"):
        raise RefusedInput(f"clip_gradients={clip} must be greater than 0 and finite, or null for none.")
    refuse_weight("r1_gamma", module.r1_gamma)
    refuse_weight("r2_gamma", module.r2_gamma)


def refuse_weight(name: str, weight: Number) -> None:
    """Raises `RefusedInput` if the weight of a loss is negative, not a number, or above 1,000,000, also at the end of
    its schedule.
    """
    value = next((end for end in ends(weight) if not 0 <= end <= _LARGEST_WEIGHT), None)
    if value is not None:
        raise RefusedInput(f"{name}={value} must be at least 0 and at most {_LARGEST_WEIGHT:,.0f}.")


def refuse_trainer(module: Settings, trainer: Trainer) -> None:
    """Raises `RefusedInput` if device, precision, data and module are incompatible."""
    _refuse_precision(trainer.strategy.root_device.type, str(trainer.precision))
    _refuse_processes(trainer)
    _refuse_data(module, data_of(trainer))


def _refuse_precision(device: str, precision: str) -> None:
    if precision.startswith("16") and device != "cuda":
        raise RefusedInput(
            f"precision=fp16 ({precision}) needs a CUDA device, and on {device} Lightning would silently compute in"
            " bf16: use precision=bf16 or precision=fp32."
        )
    if precision in ("bf16-true", "16-true") or precision.startswith("transformer-engine"):
        raise RefusedInput(
            f"precision={precision}: weights in less than float32 lose small updates of optimizers and averages: use"
            " precision=bf16 (bf16-mixed) or fp16, which compute in half precision and keep the weights."
        )
    if precision.startswith("bf16") and device == "cuda" and not torch.cuda.is_bf16_supported():
        raise RefusedInput("precision=bf16: this CUDA device has no bfloat16: use precision=fp16 or precision=fp32.")


def _refuse_processes(trainer: Trainer) -> None:
    strategy = trainer.strategy
    if (
        isinstance(strategy, DDPStrategy)
        and not isinstance(strategy, NetworkStrategy)
        and not finds_unused_parameters(strategy)
    ):
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices} with Lightning's own DDP, which waits for the gradients of frozen"
            " networks: use strategy=ddp, in Python Trainer(strategy=NetworkDDP())."
        )
    launcher, num_processes = _launched()
    if num_processes > 1 and trainer.world_size == 1:
        raise RefusedInput(
            f"{launcher} started {num_processes} processes, and each would train independently: use strategy=ddp"
            f" with trainer.devices x trainer.num_nodes = {num_processes}."
        )


def _launched() -> tuple[str, int]:
    """Returns the launcher that started this process and its number of processes."""
    if TorchElasticEnvironment.detect():
        return "torchrun", int(os.environ["WORLD_SIZE"])
    if SLURMEnvironment.detect():
        return "SLURM", int(os.environ["SLURM_NTASKS"])
    return "nobody", 1


def _refuse_data(module: Settings, data: object) -> None:
    if module.num_classes and isinstance(data, HasClasses) and data.num_classes != module.num_classes:
        raise RefusedInput(
            f"the model is conditioned on num_classes={module.num_classes} and the data has {data.num_classes} classes:"
            " they must be the same; 0 trains without classes."
        )
    if isinstance(data, HasSize):
        sizes = {
            "image_size": (data.image_size, module.image_size),
            "channels": (data.channels, module.channels),
        }
        for name, (theirs, ours) in sizes.items():
            if theirs != ours:
                raise RefusedInput(f"the data has {name}={theirs} and the model {name}={ours}: they must be the same.")
