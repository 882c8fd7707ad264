"""Hyperparameters in loggers: the configuration of a training, by which runs can be filtered and grouped."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import MLFlowLogger

from lit_gans.checkpoints.format import class_path, flat, to_plain
from lit_gans.training.callback import GenerativeCallback, callbacks_of, data_of

logger = logging.getLogger(__name__)

_NAME = (
    r"(token|(api)?key|auth|authorization|bearer|cookies?|credentials?|pwd|passphrase|connection_string"
    r"|(password|passwd|secret)\w*|storage_options)"
)
_SECRET = re.compile(rf"(^|[._]){_NAME}($|\.)", re.IGNORECASE)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # where a word of `apiKey` begins
_GIVEN = re.compile(  # in a text or a list: `NAME_TOKEN=x`, `--password x`, `Bearer x`
    rf"((?:(?<![a-z]){_NAME}=|--[\w-]*?(?<![a-z]){_NAME}['\"]?[=,\s]\s*|\bbearer\s+)['\"]?)[^\s'\",&]+", re.IGNORECASE
)
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")  # of a URL
_USER = re.compile(r"(?<=://)[^/@\s]*@")  # name and password in a URL
_HIDDEN = "(not logged)"
_MOST = 250  # characters of a value that Lightning passes to MLflow


def log_hyperparameters(trainer: Trainer, module: LightningModule) -> None:
    """Logs the resolved configuration of a run to its loggers; in a training without one, the arguments of module and
    data. Does nothing with `Trainer(enable_autolog_hparams=False)`.

    The names are those of the keys on the command line, such as `model.latent_dim`. Numbers stay numbers.
    """
    if not trainer.loggers or not trainer.enable_autolog_hparams or not trainer.is_global_zero:
        return
    given = (each.hyperparameters for each in callbacks_of(trainer, GenerativeCallback))
    parts = {"model": module, "data": data_of(trainer)}  # no data for a loader
    own = {name: _arguments(part) for name, part in parts.items() if part is not None}
    values = loggable(next((config for config in given if config), own))
    for each in trainer.loggers:
        each.log_hyperparams(_new(each, values) if isinstance(each, MLFlowLogger) else values)


def loggable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a configuration by dotted key, without secrets such as tokens and passwords."""
    found: dict[str, Any] = {}
    for key, value in flat(_indexed(to_plain(dict(config)))).items():
        is_number = isinstance(value, bool | int | float | None)
        hides = _SECRET.search(_CAPITAL.sub("_", key).replace("-", "_"))
        found[key] = _HIDDEN if hides else value if is_number else _without_secrets(str(value))
    return found


def _without_secrets(text: str) -> str:
    """Returns a text without user names and queries of URLs, and without what follows `--password` or `NAME_TOKEN=`."""
    return _GIVEN.sub(rf"\1{_HIDDEN}", _QUERY.sub(r"\1", _USER.sub("", text)))


def _indexed(value: Any) -> Any:
    """Returns plain containers in which lists of containers are mappings, so that their keys are found."""
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    return {str(key): _indexed(item) for key, item in value.items()} if isinstance(value, dict) else value


def _arguments(thing: object) -> dict[str, Any]:
    """Returns the class of a module or datamodule, and its arguments."""
    values = {"_target_": class_path(type(thing))}
    if isinstance(thing, LightningModule):
        return values | {name: value for name, value in thing.hparams.items() if name[0] != "_"}  # not LightningCLI's
    constructors = [vars(cls)["__init__"] for cls in type(thing).__mro__ if "__init__" in vars(cls)]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    return values | {name: value for name, value in sorted(vars(thing).items()) if name in names}


def _new(mlflow: MLFlowLogger, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that an MLflow run does not have yet, as in a resumed run: MLflow does not change a value."""
    known = mlflow.experiment.get_run(mlflow.run_id).data.params
    changed = [name for name in known.keys() & values.keys() if known[name] != str(values[name])[:_MOST]]
    if changed:
        logger.info("MLflow keeps the first values of %s", ", ".join(sorted(changed)))
    return {name: value for name, value in values.items() if name not in known}
