"""Notices about what a command has chosen by itself, or what a user may not expect of the training.

They are logged when the training begins, so that an error message stands alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.resources import files

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Timer

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.cli.train_arguments import OF_DIGITS
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
from lit_gans.data.base import ImageData
from lit_gans.data.sources.folder import Folder
from lit_gans.training.callback import GenerativeCallback, callbacks_of, data_of
from lit_gans.training.module import AdversarialModule

logger = logging.getLogger(__name__)

_LONG = 100_000  # iterations, the default without an experiment
_LARGE = 10_000_000  # parameters of networks of which a CPU trains less than an iteration a second


class Notices(GenerativeCallback):
    """Logs sentences when a training begins, and sentences about its networks and data.

    Args:
        notices: sentences.
    """

    def __init__(self, notices: Sequence[str]) -> None:
        self.notices = notices

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        said = [*self.notices, *long_training(trainer), *unsuitable_metrics(trainer)]
        if isinstance(pl_module, AdversarialModule):
            said += [*slow_networks(pl_module), *unused_classes(pl_module, data_of(trainer))]
        for sentence in said:
            logger.info("%s", sentence)


def unsuitable_metrics(trainer: Trainer) -> list[str]:
    """Returns a sentence about a classifier of digits that judges other images."""
    data = data_of(trainer)
    judged = any(callback.extractor.name == "digits" for callback in callbacks_of(trainer, GenerativeMetrics))
    if not judged or not isinstance(data, ImageData) or data.metrics in (*OF_DIGITS, "none"):
        return []
    return [f"metrics=digits judges by a classifier of digits: for other images, metrics={data.metrics} says more"]


def long_training(trainer: Trainer) -> list[str]:
    """Returns a sentence about a training whose end may be days away."""
    if trainer.max_steps < _LONG or callbacks_of(trainer, Timer):
        return []
    return [
        f"{trainer.max_steps:,} iterations can take hours on a GPU and days on a CPU: trainer.max_steps=NUMBER or"
        " trainer.max_time='00:02:00:00' (days:hours:minutes:seconds) ends it earlier"
    ]


def slow_networks(module: AdversarialModule) -> list[str]:
    """Returns a sentence about networks that are large for a CPU, on which they are trained."""
    num = sum(parameter.numel() for parameter in module.parameters())
    if module.device.type != "cpu" or num < _LARGE:
        return []
    name = next((name for name, cls in gans().items() if type(module) is cls), None)
    sized = (files("lit_gans.conf") / "experiment" / f"{name}_digits.yaml").is_file()
    small = f"experiment={name}_digits has networks made for a CPU" if sized else "choose smaller networks"
    what = f"{type(module).__name__} has {num:,} parameters"
    return [f"{what}, and on a CPU an iteration takes seconds to minutes: {small}"]


def unused_classes(module: AdversarialModule, data: object) -> list[str]:
    """Returns a sentence about classes of a folder of images that a module without classes does not use."""
    if not isinstance(data, Folder) or not data.num_classes or module.num_classes:
        return []
    takes = "num_classes" in schema(type(module))
    use = f": model.num_classes={data.num_classes} trains with them" if takes else ""
    return [f"data.root={data.root} has {data.num_classes} classes, its subfolders, which are not used{use}"]
