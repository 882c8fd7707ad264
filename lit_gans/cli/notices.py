"""Notices about automatic choices of a command, and about properties of the training that might surprise users.

The notices are logged when the training begins. A run that fails before that prints only its error message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.resources import files

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Timer

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.config.completed import OF_DIGITS
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
from lit_gans.data.base import ImageData
from lit_gans.data.sources.folder import Folder
from lit_gans.training.callback import GenerativeCallback, callbacks_of, data_of
from lit_gans.training.module import AdversarialModule

logger = logging.getLogger(__name__)

_LONG = 100_000  # number of iterations of a long run; the default without an experiment
_LARGE = 10_000_000  # number of parameters above which an iteration on a CPU takes more than a second
_OF_ONE_KIND = {  # networks for one kind of image, by extractor, and the metrics of the data that they suit
    "digits": ("a digit classifier", OF_DIGITS),
    "avatars": ("a network for cartoon faces", ("avatars",)),
}


class Notices(GenerativeCallback):
    """Logs notices when the training begins, including notices about networks and data.

    Args:
        notices: additional sentences to log.
    """

    def __init__(self, notices: Sequence[str]) -> None:
        self.notices = notices

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        sentences = [*self.notices, *long_training(trainer), *unsuitable_metrics(trainer)]
        if isinstance(pl_module, AdversarialModule):
            sentences += [*slow_networks(pl_module), *unused_classes(pl_module, data_of(trainer))]
        for sentence in sentences:
            logger.info("%s", sentence)


def unsuitable_metrics(trainer: Trainer) -> list[str]:
    """Returns a notice if a network that was trained on digits or on cartoon faces measures other images."""
    data = data_of(trainer)
    if not isinstance(data, ImageData) or data.metrics == "none":
        return []
    used = {callback.extractor.name for callback in callbacks_of(trainer, GenerativeMetrics)}
    return [
        f"metrics={name} uses the features of {network}; metrics={data.metrics} suits these images better"
        for name, (network, suitable) in _OF_ONE_KIND.items()
        if name in used and data.metrics not in suitable
    ]


def long_training(trainer: Trainer) -> list[str]:
    """Returns a notice if the training may take days."""
    if trainer.max_steps < _LONG or callbacks_of(trainer, Timer):
        return []
    return [
        f"{trainer.max_steps:,} iterations can take hours on a GPU and days on a CPU: trainer.max_steps=NUMBER or"
        " trainer.max_time='00:02:00:00' (days:hours:minutes:seconds) ends the training earlier"
    ]


def slow_networks(module: AdversarialModule) -> list[str]:
    """Returns a notice if large networks are trained on a CPU."""
    num = sum(parameter.numel() for parameter in module.parameters())
    if module.device.type != "cpu" or num < _LARGE:
        return []
    name = next((name for name, cls in gans().items() if type(module) is cls), None)
    has_experiment = (files("lit_gans.conf") / "experiment" / f"{name}_digits.yaml").is_file()
    advice = f"experiment={name}_digits has networks sized for a CPU" if has_experiment else "choose smaller networks"
    large = f"{type(module).__name__} has {num:,} parameters"
    return [f"{large}, and on a CPU an iteration takes seconds to minutes: {advice}"]


def unused_classes(module: AdversarialModule, data: object) -> list[str]:
    """Returns a notice if a folder of images has classes, but the module does not use them."""
    if not isinstance(data, Folder) or not data.num_classes or module.num_classes:
        return []
    has_argument = "num_classes" in schema(type(module))
    advice = f": model.num_classes={data.num_classes} trains with them" if has_argument else ""
    return [f"data.root={data.root} has {data.num_classes} classes, which are not used{advice}"]
