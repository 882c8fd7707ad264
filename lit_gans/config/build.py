"""Signatures to Hydra schemas, composed configurations to checked objects and to Lightning-CLI files.

The signature of a class is the only place where a default stands: Hydra composes, jsonargparse checks and constructs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lit_gans.checkpoints.renamed import current_paths
from lit_gans.cli.commands import command
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import classes, gans
from lit_gans.config.signatures import call, construct, schema
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.score import Score
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.optim import Optimizer, Schedule

CONFIG_PACKAGE = "lit_gans.conf"


def to_class_path(node: Any) -> Any:
    """Turns `_target_` nodes into the `class_path` / `init_args` of jsonargparse and the Lightning CLI."""
    if isinstance(node, dict) and "_target_" in node:
        init_args = {key: to_class_path(value) for key, value in node.items() if key != "_target_"}
        return {"class_path": node["_target_"], "init_args": init_args}
    if isinstance(node, dict):
        return {key: to_class_path(value) for key, value in node.items()}
    return [to_class_path(item) for item in node] if isinstance(node, list) else node


def register(config_name: str) -> None:
    """Puts the schema of every class that a configuration may name, and of its command, into Hydra's store."""
    loggers = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "mlflow": MLFlowLogger}
    groups: dict[str, dict[str, Any]] = {
        "optimizer": classes("lit_gans.training.optim", Optimizer),
        "schedule": classes("lit_gans.training.optim", Schedule),
        "model/_schema": gans(),
        "data/_schema": classes("lit_gans.data.sources", LightningDataModule),
        "callbacks/_schema": classes("lit_gans.callbacks", Callback),
        "metrics/_schema": classes("lit_gans.metrics.extractors", Extractor),
        "score": classes("lit_gans.metrics.scores", Score),
        "logger/_schema": classes("lit_gans.callbacks", Logger) | loggers,
        "trainer/_schema": {"trainer": Trainer},
        "strategy/_schema": classes("lit_gans.strategies", Strategy),
    }
    store = ConfigStore.instance()
    function = command(config_name)
    if function is not None:
        store.store(group="command", name=config_name, node=schema(function))
    for group, members in groups.items():
        for name, cls in members.items():
            store.store(group=group, name=name, node=schema(cls))


def compose(*overrides: str, config_name: str = "train") -> DictConfig:
    """Returns a composed configuration, as `lit-gans train` would: `compose("model=dcgan", "data.batch_size=32")`.

    Raises:
        RefusedInput: an override names nothing, with the nearest valid name.
    """
    from lit_gans.config.hydra_app import refusals, register_resolvers

    register_resolvers()
    register(config_name)
    GlobalHydra.instance().clear()
    with refusals(config_name, list(overrides)), initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
        return hydra_compose(config_name, list(overrides))


def resolve(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Returns plain containers with every interpolation resolved.

    Raises:
        RefusedInput: a required value is missing or an interpolation names nothing.
    """
    if isinstance(config, dict):
        return current_paths(config)
    try:
        return current_paths(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except MissingMandatoryValue as error:
        raise RefusedInput(f"{error.full_key} is required: give it as {error.full_key}=...") from error
    except OmegaConfBaseException as error:
        raise RefusedInput(f"{getattr(error, 'full_key', None) or 'a value'}: {str(error).splitlines()[0]}") from error


def to_cli(config: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Returns what `lit-gans fit -c` reads to run the same training with the same values."""
    config = resolve(config)
    callbacks = [*(config.get("callbacks") or {}).values(), config.get("metrics"), _init_from(config)]
    trainer = {key: value for key, value in config["trainer"].items() if key != "_target_"}
    trainer["callbacks"] = [node for node in callbacks if node]
    trainer["logger"] = [node for node in (config.get("logger") or {}).values() if node] or False
    parts = {"model": config["model"], "data": config["data"], "trainer": trainer}
    return {"seed_everything": config["seed"], **to_class_path(parts)}


def _init_from(config: dict[str, Any]) -> dict[str, Any] | None:
    if config.get("init_from") is None:
        return None
    return {"_target_": "lit_gans.callbacks.init_from.InitFrom", "checkpoint": config["init_from"]}


def build(config: DictConfig | dict[str, Any]) -> tuple[AdversarialModule, LightningDataModule, Trainer]:
    """Checks every value against the signatures and constructs the module, the data and the trainer.

    Raises:
        RefusedInput: a value that its signature or its class does not accept, named by its key.
    """
    config = resolve(config)
    if not isinstance(config["seed"], int):
        raise RefusedInput(f"seed={config['seed']!r} is not valid: expected int.")
    seed_everything(config["seed"], verbose=False)
    nodes = {f"callbacks.{name}": node for name, node in (config.get("callbacks") or {}).items()}
    nodes |= {"metrics": config.get("metrics"), "init_from": _init_from(config)}
    loggers = {f"logger.{name}": node for name, node in (config.get("logger") or {}).items()}
    data, module = (construct(to_class_path(config[name]), name) for name in ("data", "model"))
    arguments = {name: to_class_path(value) for name, value in config["trainer"].items() if name != "_target_"}
    callbacks, loggers = (
        [construct(to_class_path(node), name) for name, node in group.items() if node] for group in (nodes, loggers)
    )
    with trainer_refusals():
        trainer = call(partial(Trainer, callbacks=callbacks, logger=loggers or False), arguments, "trainer")
    cores = max(os.cpu_count() or 1, 2)  # two processes may be tried anywhere
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > cores:
        raise RefusedInput(
            f"trainer.devices={trainer.num_devices}: on a CPU that is processes, and there are {cores} cores."
        )
    return module, data, trainer


@contextmanager
def trainer_refusals() -> Iterator[None]:
    """Turns what the Trainer cannot do, and what it would do otherwise than asked, into `RefusedInput`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AMP with fp16 is not supported on CPU.*")
        try:
            yield
        except UserWarning as error:
            raise RefusedInput(
                "precision=fp16 needs a CUDA device: on a CPU Lightning would silently compute in bf16; use"
                " precision=bf16 or precision=fp32."
            ) from error
        except (MisconfigurationException, ValueError, RuntimeError) as error:  # also more devices than there are
            if "ModelParallelStrategy` does not support" in str(error):  # before our strategy is asked
                from lit_gans.strategies.fsdp import refused_precision

                raise RefusedInput(refused_precision(str(error).split("'")[1])) from error
            raise RefusedInput(f"trainer: {' '.join(str(error).split())}") from error
