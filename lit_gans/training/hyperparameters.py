"""Logs the configuration of a run as hyperparameters, so that loggers can filter and group runs."""

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
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # boundary between the words of a name such as `apiKey`
_INLINE_SECRET = re.compile(  # secrets within a text or a list: `NAME_TOKEN=x`, `--password x`, `Bearer x`
    rf"((?:(?<![a-z]){_NAME}=|--[\w-]*?(?<![a-z]){_NAME}['\"]?[=,\s]\s*|\bbearer\s+)['\"]?)[^\s'\",&]+", re.IGNORECASE
)
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")  # query of a URL
_USER = re.compile(r"(?<=://)[^/@\s]*@")  # user name and password in a URL
_HIDDEN = "(not logged)"
_MLFLOW_LENGTH = 250  # Lightning truncates values to this number of characters for MLflow


def log_hyperparameters(trainer: Trainer, module: LightningModule) -> None:
    """Logs the resolved configuration of a run to all loggers of the trainer.

    Without a configuration, the arguments of the module and the datamodule are logged. Nothing is logged if the trainer
    has `enable_autolog_hparams=False`. Logged names equal the keys on the command line, such as `model.latent_dim`.
    Numbers are logged as numbers.
    """
    if not trainer.loggers or not trainer.enable_autolog_hparams or not trainer.is_global_zero:
        return
    configs = (callback.hyperparameters for callback in callbacks_of(trainer, GenerativeCallback))
    parts = {"model": module, "data": data_of(trainer)}  # data is None if the trainer has a plain loader
    arguments = {name: _arguments(part) for name, part in parts.items() if part is not None}
    values = loggable(next((config for config in configs if config), arguments))
    for target in trainer.loggers:
        target.log_hyperparams(_new_values(target, values) if isinstance(target, MLFlowLogger) else values)


def loggable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a flat mapping of a configuration by dotted keys, without secrets such as tokens and passwords."""
    result: dict[str, Any] = {}
    for key, value in flat(_indexed(to_plain(dict(config)))).items():
        is_number = isinstance(value, bool | int | float | None)
        hides = _SECRET.search(_CAPITAL.sub("_", key).replace("-", "_"))
        result[key] = _HIDDEN if hides else value if is_number else _without_secrets(str(value))
    return result


def _without_secrets(text: str) -> str:
    """Removes user names and queries from URLs in a text, and hides values after `--password` or `NAME_TOKEN=`."""
    return _INLINE_SECRET.sub(rf"\1{_HIDDEN}", _QUERY.sub(r"\1", _USER.sub("", text)))


def _indexed(value: Any) -> Any:
    """Converts lists of containers to mappings by index, so that the keys inside them become part of dotted keys."""
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    return {str(key): _indexed(item) for key, item in value.items()} if isinstance(value, dict) else value


def _arguments(thing: object) -> dict[str, Any]:
    """Returns the class path and the constructor arguments of a module or datamodule."""
    values = {"_target_": class_path(type(thing))}
    if isinstance(thing, LightningModule):
        # keys that begin with an underscore belong to LightningCLI
        return values | {name: value for name, value in thing.hparams.items() if name[0] != "_"}
    constructors = [vars(cls)["__init__"] for cls in type(thing).__mro__ if "__init__" in vars(cls)]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    return values | {name: value for name, value in sorted(vars(thing).items()) if name in names}


def _new_values(mlflow: MLFlowLogger, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that an MLflow run does not have yet, since MLflow cannot change values of a resumed run."""
    known = mlflow.experiment.get_run(mlflow.run_id).data.params
    changed = [name for name in known.keys() & values.keys() if known[name] != str(values[name])[:_MLFLOW_LENGTH]]
    if changed:
        logger.info("MLflow keeps the first values of %s", ", ".join(sorted(changed)))
    return {name: value for name, value in values.items() if name not in known}
