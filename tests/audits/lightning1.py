"""Trains modules that were written for Lightning 1, whose `training_step` has the argument `optimizer_idx`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from tests.audits.common import LOCAL_BATCH, RANK, WORLD_SIZE, absent

absent("pkg_resources")  # Lightning 1.9 imports it to declare a namespace, but new versions of setuptools lack it


def fit(module: Any, rows: Any) -> None:
    """Trains a module on rows with the `ddp` strategy of Lightning 1.9, which finds unused parameters."""
    import pytorch_lightning as lightning

    if not lightning.__version__.startswith("1."):
        raise RuntimeError(f"this module needs pytorch-lightning 1.9, not {lightning.__version__}")
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    sampler = DistributedSampler(rows, WORLD_SIZE, RANK)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD_SIZE,
        strategy="ddp",
        max_epochs=9,
        max_steps=1000,
        replace_sampler_ddp=False,
        **quiet,
    )
    trainer.fit(module, DataLoader(rows, LOCAL_BATCH, sampler=sampler))


def random_rows(number: int, *size: int) -> torch.Tensor:
    """Returns random rows, which are equal on all processes."""
    return torch.rand(number, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
