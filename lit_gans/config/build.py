"""Conversion of composed configurations to validated objects and to Lightning CLI files.

Signatures are the single source of defaults: Hydra composes, jsonargparse validates and constructs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lit_gans.common.errors import RefusedInput
from lit_gans.config.run_folder import refuse_folder
from lit_gans.config.signatures import call, construct
from lit_gans.config.trainer_errors import trainer_refusals
from lit_gans.training.adversarial import AdversarialModule

_LARGEST_SEED = 2**32 - 1  # of NumPy
_OF_ONE_OPTIMIZER = "has no effect on networks with optimizers of their own: use model."
_ELSEWHERE = {  # arguments of the Trainer that others set: their defaults, and what to use instead
    "gradient_clip_val": (None, f"{_OF_ONE_OPTIMIZER}clip_gradients={{}}"),
    "accumulate_grad_batches": (1, f"{_OF_ONE_OPTIMIZER}accumulate_gradients={{}}"),
    "callbacks": (None, "cannot be set: callbacks.NAME._target_=CLASS adds one, callbacks=none leaves out all"),
    "logger": (None, "cannot be set: use logger=NAME, or logger=none"),
    "overfit_batches": (0.0, "cannot be set: it would change the order of images; use trainer.limit_train_batches"),
}
_ONE_OPTIMIZER = ("gradient_clip_val", "accumulate_grad_batches")


def to_class_path(node: Any) -> Any:
    """Converts `_target_` nodes to `class_path` / `init_args` as in jsonargparse and the Lightning CLI."""
    if isinstance(node, dict) and "_target_" in node:
        init_args = {key: to_class_path(value) for key, value in node.items() if key != "_target_"}
        return {"class_path": node["_target_"], "init_args": init_args}
    if isinstance(node, dict):
        return {key: to_class_path(value) for key, value in node.items()}
    return [to_class_path(item) for item in node] if isinstance(node, list) else node


def resolve(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Converts a configuration to plain containers with all interpolations resolved.

    Raises:
        RefusedInput: a required value is missing, or an interpolation refers to a key that does not exist.
    """
    return _without_settings_of_nothing(_plain(config))


def _without_settings_of_nothing(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration in which `metrics=none` also leaves out the settings of an experiment's metrics."""
    metrics = config.get("metrics")
    if isinstance(metrics, dict) and not {"_target_", "class_path"} & {*metrics}:
        return config | {"metrics": None}
    return config


def _plain(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    if isinstance(config, dict):
        return config
    trainer: Any = config.get("trainer") or {}
    # outside of `lit-gans train`; the trainer of a benchmark has a precision and no folder
    if "default_root_dir" in trainer and trainer.default_root_dir is None:
        config = config.copy()
        config.trainer.default_root_dir = os.getcwd()
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return cast(dict[str, Any], plain)
    except MissingMandatoryValue as error:
        raise RefusedInput(f"{error.full_key} is required: give it as {error.full_key}=...") from error
    except OmegaConfBaseException as error:
        raise RefusedInput(f"{error.full_key or 'a value'}: {str(error).splitlines()[0]}") from error


def to_cli(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with which `lit-gans fit -c` runs the same training."""
    config = resolve(config)
    callbacks = [*(config.get("callbacks") or {}).values(), config.get("metrics"), _init_from(config)]
    trainer = {key: value for key, value in config["trainer"].items() if key != "_target_"}
    trainer["callbacks"] = [node for node in callbacks if node]
    trainer["logger"] = [node for node in (config.get("logger") or {}).values() if node] or False
    nodes = {"model": config["model"], "data": config["data"], "trainer": trainer}
    return {"seed_everything": config["seed"], **to_class_path(nodes)}


def _init_from(config: dict[str, Any]) -> dict[str, Any] | None:
    if config.get("init_from") is None:
        return None
    return {"_target_": "lit_gans.callbacks.init_from.InitFrom", "checkpoint": config["init_from"]}


def build(config: DictConfig | dict[str, Any]) -> tuple[AdversarialModule, LightningDataModule, Trainer]:
    """Validates all values against the signatures and constructs the module, the data and the trainer.

    Raises:
        RefusedInput: a signature or class does not accept a value; names its key.
    """
    if not isinstance(config, DictConfig | dict):
        raise RefusedInput(f"build takes a configuration, build(compose(...)), received {config!r}.")
    config = resolve(config)
    _refuse_values(config)
    seed_everything(config["seed"], verbose=False)
    nodes = {f"callbacks.{name}": node for name, node in (config.get("callbacks") or {}).items()}
    nodes |= {"metrics": config.get("metrics"), "init_from": _init_from(config)}
    logger_nodes = {f"logger.{name}": node for name, node in (config.get("logger") or {}).items()}
    data = construct(config["data"], "data", LightningDataModule)
    module = construct(config["model"], "model", AdversarialModule)
    callbacks = [construct(node, name, Callback) for name, node in nodes.items() if node]
    loggers = {name: construct(node, name, Logger) for name, node in logger_nodes.items() if node}
    for name, made in loggers.items():
        if made.save_dir and "://" not in str(made.save_dir):
            refuse_folder(made.save_dir, f"{name}.save_dir")
    arguments = {name: value for name, value in config["trainer"].items() if name != "_target_"}
    with trainer_refusals():
        trainer = call(
            partial(Trainer, callbacks=callbacks, logger=list(loggers.values()) or False), arguments, "trainer"
        )
    _refuse_processes(trainer)
    return module, data, trainer


def _refuse_processes(trainer: Trainer) -> None:
    """Raises `RefusedInput` for more processes than cores, and nodes that would wait for each other indefinitely."""
    cores = max(os.cpu_count() or 1, 2)  # two processes are always allowed
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > cores:
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices}: on a CPU, devices are processes, and there are {cores} cores:"
            f" use at most trainer.devices={cores}."
        )
    strategy = trainer.strategy
    alone = isinstance(strategy, DDPStrategy) and isinstance(strategy.cluster_environment, LightningEnvironment)
    if trainer.num_nodes > 1 and alone and "MASTER_ADDR" not in os.environ:
        raise RefusedInput(
            f"trainer.num_nodes={trainer.num_nodes}: nothing says where the other nodes are; start the command with"
            " torchrun or srun, or set MASTER_ADDR, MASTER_PORT and NODE_RANK on each node."
        )
    if trainer.world_size > 1 and alone and not {"LOCAL_RANK", "NODE_RANK"} & {*os.environ}:
        _refuse_port(os.environ.get("MASTER_PORT", ""))


def _refuse_port(port: str) -> None:
    """Raises `RefusedInput` if the first process of a run cannot listen on the port that the environment names."""
    if not port:  # Lightning finds a free one
        return
    try:
        with socket.create_server(("127.0.0.1", int(port))):
            pass
    except (OSError, OverflowError, ValueError) as error:
        raise RefusedInput(
            f"MASTER_PORT={port}: the processes cannot meet there ({error}); set another number, or unset it for a free"
            " one."
        ) from error


def refuse_start(resume: Any, init_from: Any) -> None:
    """Raises `RefusedInput` if a configuration does not say from which checkpoint a run starts, or says two."""
    for key, value in {"resume": resume, "init_from": "none" if init_from is None else init_from}.items():
        if not isinstance(value, str) or not value.strip():
            choices = "none, auto, or " if key == "resume" else "null, or "
            given = "null" if value is None else repr(value)
            raise RefusedInput(f"{key}={given} is not valid: expected {choices}the path of a checkpoint or of a run.")
    if init_from is not None and resume not in ("none", "auto"):
        raise RefusedInput(
            f"resume={resume} continues a run and init_from={init_from} begins a new one: leave one of them out."
        )


def _refuse_values(config: dict[str, Any]) -> None:
    """Raises `RefusedInput` for values that no signature checks."""
    seed, trainer = config["seed"], config["trainer"]
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise RefusedInput(f"seed={seed!r} is not valid: expected int.")
    if not 0 <= seed <= _LARGEST_SEED:
        raise RefusedInput(f"seed={seed} must lie in [0, {_LARGEST_SEED}].")
    for name in ("max_steps", "max_epochs"):
        value = trainer.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1 and value != -1:
            raise RefusedInput(f"trainer.{name}={value} must be at least 1, or -1 for training without an end.")
    for unit in ("steps", "epochs"):
        least, most = trainer.get(f"min_{unit}"), trainer.get(f"max_{unit}")
        if type(least) is int and type(most) is int and -1 < most < least:
            raise RefusedInput(
                f"trainer.min_{unit}={least} must be at most trainer.max_{unit}={most}, where the training ends."
            )
    every = trainer.get("log_every_n_steps")
    if isinstance(every, int) and every < 0:
        raise RefusedInput(f"trainer.log_every_n_steps={every} must be at least 1, or 0 for no log.")
    devices = trainer.get("devices", "auto")
    if (isinstance(devices, int) and devices < 1 and devices != -1) or devices == []:
        raise RefusedInput(
            f"trainer.devices={devices} must be auto, at least 1, or on CUDA a list of the devices' numbers, [0,1]."
        )
    refuse_elsewhere(trainer, tuple(_ELSEWHERE))
    if trainer.get("limit_train_batches") in (0, "0", "0.0"):
        raise RefusedInput(
            f"trainer.limit_train_batches={trainer['limit_train_batches']} must be greater than 0; 1.0 is all batches."
        )


def refuse_elsewhere(trainer: Mapping[str, Any], names: Sequence[str] = _ONE_OPTIMIZER, prefix: str = "") -> None:
    """Raises `RefusedInput` for arguments of the Trainer that are settings of another object here.

    Args:
        trainer: arguments of the Trainer.
        names: names of the arguments that are not allowed.
        prefix: what comes before a key on the command line.
    """
    for name in names:
        unset, instead = _ELSEWHERE[name]
        value = trainer.get(name, unset)
        if value not in (unset, None):
            words = instead.format(value).replace("use model.", f"use {prefix}model.")
            raise RefusedInput(f"{prefix}trainer.{name}={value} {words}.")
