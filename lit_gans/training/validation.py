"""Refusals of the training loop: what would fail late, or silently do something else, ends before the first step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.base import NetworkStrategy

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from lit_gans.training.adversarial import AdversarialModule

_COUNTS = (
    "image_size",
    "channels",
    "latent_dim",
    "n_critic",
    "generator_batch_multiple",
    "accumulate_gradients",
    "r1_every",
)


def refuse_settings(module: AdversarialModule) -> None:
    """Raises `RefusedInput` for a setting of the module that no training could use."""
    for name in _COUNTS:
        if getattr(module, name) < 1:
            raise RefusedInput(f"{name}={getattr(module, name)} must be at least 1.")
    if module.clip_gradients_to is not None and not module.clip_gradients_to > 0:
        raise RefusedInput(f"clip_gradients={module.clip_gradients_to} must be greater than 0, or null for none.")
    if module.r1_gamma < 0:
        raise RefusedInput(f"r1_gamma={module.r1_gamma} must be at least 0.")


def _launched() -> tuple[str, int]:
    """Returns who started this process, and how many."""
    if TorchElasticEnvironment.detect():
        return "torchrun", int(os.environ["WORLD_SIZE"])
    if SLURMEnvironment.detect():
        return "SLURM", int(os.environ["SLURM_NTASKS"])
    return "nobody", 1


def refuse_trainer(module: AdversarialModule, trainer: Trainer) -> None:
    """Raises `RefusedInput` where device, precision, data and module do not go together."""
    device = trainer.strategy.root_device.type
    precision = str(trainer.precision)
    if precision.startswith("16") and device != "cuda":
        raise RefusedInput(
            f"precision=fp16 ({precision}) needs a CUDA device, and on {device} Lightning would silently compute in"
            " bf16: use precision=bf16 or precision=fp32."
        )
    if precision in ("bf16-true", "16-true") or precision.startswith("transformer-engine"):
        raise RefusedInput(
            f"precision={precision}: weights in less than float32 lose the small steps of optimizers and averages: use"
            " precision=bf16 (bf16-mixed) or fp16, which compute in half precision and keep the weights."
        )
    if precision.startswith("bf16") and device == "cuda" and not torch.cuda.is_bf16_supported():
        raise RefusedInput("precision=bf16: this CUDA device has no bfloat16: use precision=fp16 or precision=fp32.")
    if module.compile_networks and module.penalised_networks:
        raise RefusedInput(
            f"compile=true with a gradient penalty on {', '.join(module.penalised_networks)}: torch does not"
            " differentiate a compiled network twice: use compile=false."
        )
    strategy = trainer.strategy
    lightnings = isinstance(strategy, DDPStrategy) and not isinstance(strategy, NetworkStrategy)
    if lightnings and not strategy._ddp_kwargs.get("find_unused_parameters"):
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices} with Lightning's own DDP, which waits for the gradients of frozen"
            " networks: use strategy=ddp, in Python Trainer(strategy=NetworkDDP())."
        )
    launcher, num_processes = _launched()
    if num_processes > 1 and trainer.world_size == 1:
        raise RefusedInput(
            f"{launcher} started {num_processes} processes, and each would train the same by itself: use strategy=ddp"
            f" with trainer.devices and trainer.num_nodes that make {num_processes}."
        )
    data = trainer.datamodule
    if module.num_classes and getattr(data, "num_classes", module.num_classes) != module.num_classes:
        raise RefusedInput(
            f"the model is told num_classes={module.num_classes} and the data has {data.num_classes} classes: they must"
            " be the same; 0 trains without classes."
        )
    for name in ("image_size", "channels"):
        theirs = getattr(data, name, None)
        if theirs is not None and theirs != getattr(module, name):
            raise RefusedInput(
                f"the data has {name}={theirs} and the model {name}={getattr(module, name)}: they must be the same."
            )
