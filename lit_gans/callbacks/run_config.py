"""The configuration of a run: in its checkpoints, and the same on every rank."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lit_gans.checkpoints import FORMAT_KEY
from lit_gans.errors import RefusedInput


class RunConfig(Callback):
    """Keeps the resolved configuration of a run.

    Writes its files into the run folder when the training begins, not before: a refused run changes nothing. Stores the
    configuration in checkpoints, where `lit-gans evaluate` finds data and metrics. Compares its hash over all ranks
    before the first step: ranks that differ would train something that nobody asked for.

    Args:
        config: the resolved configuration.
        files: texts by the name of the file.
    """

    def __init__(self, config: dict[str, Any], files: dict[str, str]) -> None:
        self.files = files
        self.config = config
        text = json.dumps(config, sort_keys=True, default=str)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        everyone: list[str] = [""] * trainer.world_size
        torch.distributed.all_gather_object(everyone, self.fingerprint)
        if len(set(everyone)) > 1:
            other = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
            raise RefusedInput(
                f"ranks {other} have another configuration than rank 0: start every process with the same overrides."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            for name, text in self.files.items():
                path = Path(trainer.default_root_dir) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | {"config": self.config}
