"""Trains modules that were written for Lightning 1, whose `training_step` has the argument `optimizer_idx`."""

from __future__ import annotations

from typing import Any

from tests.audits.common import QUIET, WORLD_SIZE, absent, loader

absent("pkg_resources")  # Lightning 1.9 imports it to declare a namespace, but new versions of setuptools lack it


def fit(module: Any, rows: Any) -> None:
    """Trains a module on rows with the `ddp` strategy of Lightning 1.9, which finds unused parameters."""
    import pytorch_lightning as lightning

    if not lightning.__version__.startswith("1."):
        raise RuntimeError(f"this module needs pytorch-lightning 1.9, not {lightning.__version__}")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD_SIZE,
        strategy="ddp",
        max_epochs=9,
        max_steps=1000,
        replace_sampler_ddp=False,
        **QUIET,
    )
    trainer.fit(module, loader(rows))
