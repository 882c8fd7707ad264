"""Callback that saves the configuration of a run and verifies that it is equal on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.checkpoints.format import FORMAT_KEY, flat
from lit_gans.common.atomic import replacing, set_aside, writing
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback, continues_run

# arguments of data sources that change neither the images nor their order
_SAME_IMAGES = ("batch_size", "num_workers", "placement", "cache", "cache_bytes", "on_error", "seed", "flip")
# arguments that are paths; they may differ, because data can be moved, and the loader compares the images themselves
_PATHS = ("root", "labels", "files", "font")


class RunConfig(GenerativeCallback):
    """Stores the resolved configuration of a run and verifies that it is equal on all ranks.

    The files are written to the run folder when the training begins, so that an invalid run changes no files. Every
    checkpoint contains the configuration, from which `lit-gans evaluate` reads data and metrics. Loggers receive the
    configuration as hyperparameters. `setup` raises an error if the configuration differs between ranks.

    Args:
        config: resolved configuration.
        files: contents of the files to write, by file name; None writes no files.

    Raises:
        RefusedInput: If the configuration differs between ranks. Raised by `setup`.
    """

    def __init__(self, config: dict[str, Any], files: dict[str, str] | None = None) -> None:
        self.files = files or {}
        self.config = self.hyperparameters = config

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        configs: list[dict[str, Any]] = [{}] * trainer.world_size
        torch.distributed.all_gather_object(configs, flat(self.config))
        first = configs[0]
        for rank, config in enumerate(configs):
            for name in [*first, *config]:
                if config.get(name) != first.get(name):
                    raise RefusedInput(
                        f"rank {rank} has {name}={config.get(name)}, but rank 0 has {first.get(name)}: start every"
                        " process with the same overrides, in the same folder."
                    )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse_other_run(trainer)
        if trainer.is_global_zero:
            for name, text in self.files.items():
                path = Path(trainer.default_root_dir) / name
                if not continues_run(trainer) and not _has_text(path, text):
                    set_aside(path)
                with writing(path), replacing(path) as part:
                    part.write_text(text, encoding="utf-8")

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Raises `RefusedInput` if the resumed checkpoint was trained on different data."""
        for name, (saved, current) in _changed("data", checkpoint, self.config).items():
            raise RefusedInput(
                f"the checkpoint was trained with {name}={saved}, but this run has {current}: a resumed run must use"
                " the same data. To start a new run from the checkpoint's networks, use init_from=PATH."
            )
        saved = checkpoint.get(FORMAT_KEY, {}).get("config", {})
        if "init_from" in saved:  # resumed commands omit it, but model cards name the origin of the networks
            self.config = self.config | {"init_from": saved["init_from"]}

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[FORMAT_KEY] = checkpoint.get(FORMAT_KEY, {}) | {"config": self.config}


def other_settings(checkpoint: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Returns a phrase for each setting of the model, the data or the seed that differs from that of a checkpoint.

    Settings that change neither the images nor their order are left out.
    """
    parts = (_changed(part, checkpoint, config) for part in ("model", "seed", "data"))
    return [f"{name}={saved} instead of {now}" for part in parts for name, (saved, now) in part.items()]


def _changed(part: str, checkpoint: dict[str, Any], config: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that a checkpoint's configuration and another one have, but with different values.

    Settings of the data that change neither the images nor their order are left out.
    """
    stored = checkpoint.get(FORMAT_KEY, {}).get("config", {})
    saved, current = (flat({part: source[part]} if source.get(part) is not None else {}) for source in (stored, config))
    same = (*_SAME_IMAGES, *_PATHS) if part == "data" else ()
    names = [name for name in saved if name in current and name.rpartition(".")[2] not in same]
    return {name: (saved[name], current[name]) for name in names if saved[name] != current[name]}


def _has_text(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()
