"""The configuration of a run: written to its folder and checkpoints, and verified to be equal on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.checkpoints.format import FORMAT_KEY, flat
from lit_gans.common.atomic import replacing, writing
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback

# arguments of data sources that change neither images nor their order; and paths, which may move: the loader compares
# what is there
_SAME_IMAGES = ("batch_size", "num_workers", "placement", "cache", "cache_bytes", "on_error", "seed", "flip")
_PATHS = ("root", "labels", "files", "font")


class RunConfig(GenerativeCallback):
    """Stores the resolved configuration of a run and compares it over all ranks.

    Writes its files to the run folder when the training begins, so that an invalid run changes nothing, and the
    configuration to checkpoints, from which `lit-gans evaluate` reads data and metrics. Loggers receive it as
    hyperparameters. Different configurations on different ranks raise an error before the first step.

    Args:
        config: resolved configuration.
        files: contents of the files to write, by file name; None for none.

    Raises:
        RefusedInput: the configuration differs between ranks; raised by `setup`.
    """

    def __init__(self, config: dict[str, Any], files: dict[str, str] | None = None) -> None:
        self.files = files or {}
        self.config = self.hyperparameters = config

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        everyone: list[dict[str, Any]] = [{}] * trainer.world_size
        torch.distributed.all_gather_object(everyone, flat(self.config))
        first = everyone[0]
        for rank, theirs in enumerate(everyone):
            for name in [*first, *theirs]:
                if theirs.get(name) != first.get(name):
                    raise RefusedInput(
                        f"rank {rank} has {name}={theirs.get(name)} where rank 0 has {first.get(name)}: start every"
                        " process with the same overrides, in the same folder."
                    )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse_other_run(trainer)
        if trainer.is_global_zero:
            for name, text in self.files.items():
                path = Path(trainer.default_root_dir) / name
                with writing(path), replacing(path) as part:
                    part.write_text(text, encoding="utf-8")

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Raises `RefusedInput` if the resumed checkpoint was trained on other data."""
        theirs = checkpoint.get(FORMAT_KEY, {}).get("config", {}).get("data")
        theirs, ours = (flat({"data": data or {}}) for data in (theirs, self.config.get("data")))
        for name in theirs.keys() & ours.keys():
            if theirs[name] != ours[name] and name.rpartition(".")[2] not in (*_SAME_IMAGES, *_PATHS):
                raise RefusedInput(
                    f"the checkpoint was trained with {name}={theirs[name]}, this run has {ours[name]}: a resumed run"
                    " must see the same data. To start a new run from its networks, use init_from=PATH."
                )

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | {"config": self.config}
