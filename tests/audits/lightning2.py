"""Trains modules of Lightning 2, whose `training_step` steps several optimizers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.audits.common import QUIET, WORLD_SIZE, loader


def fit(lightning: ModuleType, module: Any, rows: Any) -> None:
    """Trains a module on rows with the strategy that finds unused parameters.

    Args:
        lightning: package that the module imports, `lightning` or `pytorch_lightning`.
        module: module that is trained.
        rows: rows of all processes.
    """

    class Data(lightning.LightningDataModule):  # type: ignore[name-defined, misc]
        def train_dataloader(self) -> Any:
            return batches

        _train_dataloader = train_dataloader  # name that SEED-Voken calls

    batches = loader(rows)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD_SIZE,
        strategy="ddp_find_unused_parameters_true" if WORLD_SIZE > 1 else "auto",
        max_epochs=9,
        use_distributed_sampler=False,
        **QUIET,
    )
    trainer.fit(module, datamodule=Data())
