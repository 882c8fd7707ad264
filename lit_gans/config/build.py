"""Conversion of composed configurations to validated objects and to Lightning CLI files.

Signatures are the single source of defaults: Hydra composes, jsonargparse validates and constructs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lightning.pytorch import LightningDataModule, Trainer, seed_everything
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lit_gans.checkpoints.renamed import current_paths
from lit_gans.common.errors import RefusedInput
from lit_gans.config.signatures import call, construct
from lit_gans.training.adversarial import AdversarialModule

_LARGEST_SEED = 2**32 - 1  # of NumPy


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
    if isinstance(config, dict):
        return current_paths(config)
    trainer: Any = config.get("trainer") or {}
    # outside of `lit-gans train`; the trainer of a benchmark has a precision and no folder
    if "default_root_dir" in trainer and trainer.default_root_dir is None:
        config = config.copy()
        config.trainer.default_root_dir = os.getcwd()
    try:
        return current_paths(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
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
    config = resolve(config)
    _refuse_values(config)
    seed_everything(config["seed"], verbose=False)
    nodes = {f"callbacks.{name}": node for name, node in (config.get("callbacks") or {}).items()}
    nodes |= {"metrics": config.get("metrics"), "init_from": _init_from(config)}
    logger_nodes = {f"logger.{name}": node for name, node in (config.get("logger") or {}).items()}
    data, module = (construct(config[name], name) for name in ("data", "model"))
    callbacks, loggers = (
        [construct(node, name) for name, node in group.items() if node] for group in (nodes, logger_nodes)
    )
    arguments = {name: value for name, value in config["trainer"].items() if name != "_target_"}
    with trainer_refusals():
        trainer = call(partial(Trainer, callbacks=callbacks, logger=loggers or False), arguments, "trainer")
    cores = max(os.cpu_count() or 1, 2)  # two processes are always allowed
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > cores:
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices}: on a CPU, devices are processes, and there are only {cores} cores."
        )
    return module, data, trainer


def _refuse_values(config: dict[str, Any]) -> None:
    """Raises `RefusedInput` for values that no signature checks."""
    seed, trainer = config["seed"], config["trainer"]
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise RefusedInput(f"seed={seed!r} is not valid: expected int.")
    if not 0 <= seed <= _LARGEST_SEED:
        raise RefusedInput(f"seed={seed} must lie in [0, {_LARGEST_SEED}].")
    for name in ("max_steps", "max_epochs"):
        value = trainer.get(name)
        if isinstance(value, int) and value < 1 and value != -1:
            raise RefusedInput(f"trainer.{name}={value} must be at least 1, or -1 for training without an end.")
    if trainer.get("limit_train_batches") in (0, "0", "0.0"):
        raise RefusedInput(
            f"trainer.limit_train_batches={trainer['limit_train_batches']} must be greater than 0; 1.0 is all batches."
        )


@contextmanager
def trainer_refusals() -> Iterator[None]:
    """Converts errors of the Trainer, and settings that it would silently change, to `RefusedInput`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AMP with fp16 is not supported on CPU.*")
        try:
            yield
        except UserWarning as error:
            raise RefusedInput(
                "precision=fp16 needs a CUDA device: on a CPU Lightning would silently compute in bf16; use"
                " precision=bf16 or precision=fp32."
            ) from error
        except (MisconfigurationException, ValueError, RuntimeError) as error:  # for example, too few devices
            if "ModelParallelStrategy` does not support" in str(error):  # raised before our strategy's own check
                from lit_gans.strategies.fsdp import refused_precision

                raise RefusedInput(refused_precision(str(error).split("'")[1])) from error
            raise RefusedInput(f"trainer: {' '.join(str(error).split())}") from error
