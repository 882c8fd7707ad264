"""Converts composed configurations to validated objects and to Lightning CLI files.

Hydra composes a configuration. jsonargparse validates its values and constructs the objects. All defaults come from
signatures.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lit_gans.callbacks.evaluation import Measurement
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.loggers import end_earlier_training
from lit_gans.common.paths import printable
from lit_gans.config.mistakes import error_message
from lit_gans.config.signatures import construct, is_node, schema, target_class, to_class_path
from lit_gans.training.module import AdversarialModule

# unsupported Trainer arguments, with alternatives; they would be replaced silently, or change the order of images
_UNSUPPORTED = {
    "callbacks": "callbacks.NAME._target_=CLASS adds a callback, callbacks=none removes all callbacks",
    "logger": "use logger=NAME, or logger=none",
    "enable_checkpointing": "callbacks.checkpoint=null removes the checkpoints",
    "overfit_batches": "use trainer.limit_train_batches",
}


def resolve(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Converts a configuration to plain containers with all interpolations resolved.

    With `metrics=none`, the metrics settings of an experiment are dropped. `trainer.benchmark=null` becomes true,
    because all iterations have images of the same shape. With `trainer.deterministic`, it becomes false.

    Raises:
        RefusedInput: If a required value is missing, or if an interpolation refers to a key that does not exist.
    """
    plain: Any = config
    if isinstance(config, DictConfig):
        trainer: Any = config.get("trainer") or {}
        # `lit-gans train` sets the folder of the run; all other callers use the current folder
        if "default_root_dir" in trainer and trainer.default_root_dir is None:
            config = config.copy()
            config.trainer.default_root_dir = os.getcwd()
        try:
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            key = f"{error.full_key}: " if error.full_key and error.full_key not in error_message(error) else ""
            raise RefusedInput(f"{key}{error_message(error)}.") from error
    trainer = plain.get("trainer")
    if isinstance(trainer, dict) and trainer.get("benchmark") is None:
        plain = plain | {"trainer": trainer | {"benchmark": not trainer.get("deterministic")}}
    metrics = plain.get("metrics")
    return plain | {"metrics": None} if isinstance(metrics, dict) and not is_node(metrics) else dict(plain)


def to_cli(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with which `lit-gans fit -c` runs the same training."""
    config = resolve(config)
    trainer = {key: value for key, value in config["trainer"].items() if key != "_target_"}
    trainer["callbacks"] = [*_callbacks(config).values()]
    trainer["enable_checkpointing"] = _saves_checkpoints(config)
    trainer["logger"] = [node for node in (config.get("logger") or {}).values() if node] or False
    nodes = {"model": config["model"], "data": config["data"], "trainer": trainer}
    return {"seed_everything": config["seed"], **to_class_path(nodes)}


def _callbacks(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration nodes of all callbacks by dotted key, such as `callbacks.ema`.

    Measurements under `callbacks` come after the measurement under `metrics`, because the first measured FID selects
    the best checkpoint.
    """
    nodes = {f"callbacks.{name}": node for name, node in (config.get("callbacks") or {}).items()}
    measurements = {key: node for key, node in nodes.items() if _is_measurement(node, key)}
    rest = {key: node for key, node in nodes.items() if key not in measurements}
    nodes = {**rest, "metrics": config.get("metrics"), **measurements, "init_from": _init_from(config)}
    return {key: node for key, node in nodes.items() if node}


def _saves_checkpoints(config: dict[str, Any]) -> bool:
    """Returns whether a callback saves checkpoints.

    If no callback does, Lightning would add its `ModelCheckpoint`, whose checkpoints `resume=auto` does not find.
    """
    nodes = _callbacks(config).items()
    return any(is_node(node) and issubclass(target_class(node["_target_"], key), Checkpoint) for key, node in nodes)


def _is_measurement(node: Any, key: str) -> bool:
    return is_node(node) and issubclass(target_class(node["_target_"], key), Measurement)


def _init_from(config: dict[str, Any]) -> dict[str, Any] | None:
    if config.get("init_from") is None:
        return None
    return {"_target_": "lit_gans.callbacks.init_from.InitFrom", "checkpoint": config["init_from"]}


def build(config: DictConfig | dict[str, Any]) -> tuple[AdversarialModule, LightningDataModule, Trainer]:
    """Validates all values against the signatures and constructs the module, the data and the trainer.

    Raises:
        RefusedInput: If a signature or a class does not accept a value, or if `resume` is set.
    """
    config = resolve(config)
    if config.get("resume", "none") != "none":
        raise RefusedInput(
            f"resume={config['resume']}: build does not start the training: leave out resume=, and pass the path of a"
            " checkpoint to the trainer, trainer.fit(module, datamodule=data, ckpt_path=PATH)."
        )
    if config["seed"] is None:  # which Lightning would treat as 0
        raise RefusedInput("seed=null is not valid: expected a whole number.")
    with refusing(f"seed={config['seed']!r} is not valid"):
        seed_everything(int(config["seed"]), verbose=False)
    data = construct(config["data"], "data", LightningDataModule)
    module = construct(config["model"], "model", AdversarialModule)
    callbacks = [construct(node, name, Callback) for name, node in _callbacks(config).items()]
    logger_nodes = (config.get("logger") or {}).items()
    loggers = [construct(node, f"logger.{name}", Logger) for name, node in logger_nodes if node]
    _refuse_log_folders(loggers)
    end_earlier_training(loggers)
    node = dict(config["trainer"])
    _refuse_limits(node)
    for name, alternative in _UNSUPPORTED.items():
        if node.pop(name, None) not in (None, schema(Trainer)[name]):
            raise RefusedInput(f"trainer.{name} cannot be set: {alternative}.")
    node["enable_checkpointing"] = _saves_checkpoints(config)
    with constructing_trainer():
        trainer = construct(node, "trainer", Trainer, callbacks=callbacks, logger=loggers or False)
    refuse_settings(trainer)
    return module, data, trainer


def _refuse_limits(trainer: dict[str, Any]) -> None:
    """Raises `RefusedInput` for limits of a training that Lightning refuses without their format."""
    if trainer.get("max_steps", -1) is None:
        raise RefusedInput("trainer.max_steps=null is not valid: expected a number of iterations, or -1 for no limit.")
    limit = trainer.get("max_time")
    if limit is not None and not (isinstance(limit, dict) or re.fullmatch(r"\d+(:\d\d){3}", str(limit).strip())):
        raise RefusedInput(
            f"trainer.max_time={limit} is not valid: expected days:hours:minutes:seconds, such as '00:02:00:00'."
        )


@contextmanager
def constructing_trainer() -> Iterator[None]:
    """Context manager for the construction of a Trainer.

    Raises Lightning's warning about fp16 on a CPU as an error, because Lightning would compute in bf16 instead. Raises
    `RefusedInput` for two callbacks with the same state key, because checkpoints can store only one state per key.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AMP with fp16 is not supported on CPU.*")
        try:
            yield
        except (RuntimeError, RefusedInput) as error:
            match = re.search(r"Found more than one stateful callback of type `(\w+)`", str(error))
            if match is None:
                raise
            raise RefusedInput(
                f"two callbacks, {match[1]} and {match[1]}, would both store their state in checkpoints under the same"
                " key: keep one of them, or give them different settings."
            ) from error


def refuse_settings(trainer: Trainer) -> None:
    """Raises `RefusedInput` for settings of a Trainer that train nothing, or that this machine cannot run."""
    _refuse_empty_training(trainer)
    _refuse_processes(trainer)


def _refuse_empty_training(trainer: Trainer) -> None:
    """Raises `RefusedInput` for a run without iterations, which Lightning would report as a success."""
    for name in ("max_steps", "max_epochs", "limit_train_batches"):
        if getattr(trainer, name) == 0:
            raise RefusedInput(f"trainer.{name}=0 trains nothing: it must be greater than 0.")


def _refuse_log_folders(loggers: list[Logger]) -> None:
    """Raises `RefusedInput` if TensorBoard cannot open its log folder, because the folder's name is not UTF-8."""
    for logger in loggers:
        folder = str(logger.save_dir)
        if isinstance(logger, TensorBoardLogger) and printable(folder) != folder:
            raise RefusedInput(
                f"TensorBoard cannot write to the folder {folder}, because its name is not UTF-8: use logger=csv, or"
                " another folder (hydra.run.dir=FOLDER)."
            )


def _refuse_processes(trainer: Trainer) -> None:
    """Raises `RefusedInput` for more processes than cores, and for several nodes without a rendezvous address.

    `devices=8` would start eight processes on a machine whose GPUs are not found. Nodes without an address would wait
    for each other forever.
    """
    strategy, cores = trainer.strategy, max(os.cpu_count() or 1, 2)  # two processes are always allowed
    if strategy.root_device.type == "cpu" and trainer.num_devices > cores:
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices}: on a CPU, devices are processes, and there are only {cores} cores:"
            f" use at most trainer.devices={cores}."
        )
    is_local = isinstance(strategy, DDPStrategy) and isinstance(strategy.cluster_environment, LightningEnvironment)
    if trainer.num_nodes > 1 and is_local and "MASTER_ADDR" not in os.environ:
        raise RefusedInput(
            f"trainer.num_nodes={trainer.num_nodes}: the address of the first node is not set; start the command with"
            " torchrun or srun, or set MASTER_ADDR, MASTER_PORT and NODE_RANK on each node."
        )


def refuse_start(resume: Any, init_from: Any) -> None:
    """Raises `RefusedInput` if `resume` or `init_from` is not a path, or if both select a checkpoint."""
    for key, value in {"resume": resume, "init_from": "none" if init_from is None else init_from}.items():
        if not isinstance(value, str) or not value.strip():
            expected = "none, auto, or " if key == "resume" else ""
            shown = "null" if value is None else repr(value)
            raise RefusedInput(f"{key}={shown} is not valid: expected {expected}the path of a checkpoint or of a run.")
    if init_from is not None and resume not in ("none", "auto"):
        raise RefusedInput(
            f"resume={resume} continues a run, but init_from={init_from} starts a new run: leave out one of them."
        )
