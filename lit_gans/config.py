"""Signatures to Hydra schemas, composed configurations to checked objects and to Lightning-CLI files.

The signature of a class is the only place where a default stands: Hydra composes, jsonargparse checks and constructs.
"""

from __future__ import annotations

import inspect
import re
import warnings
from argparse import ArgumentError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import get_class
from jsonargparse import ArgumentParser
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lit_gans.commands import command
from lit_gans.errors import RefusedInput, install_command, nearest
from lit_gans.metrics.extractor import Extractor
from lit_gans.models.base import AdversarialModule
from lit_gans.optim import Optimizer, Schedule
from lit_gans.registry import classes

CONFIG_PACKAGE = "lit_gans.conf"
_EXTRAS = {"wandb": "wandb", "mlflow": "mlflow", "mlxtend": "demo"}  # module: our extra


def schema(target: type | Callable[..., Any]) -> dict[str, Any]:
    """Returns the arguments of a class or function with their defaults; what has none is `???`.

    A value whose class the user may choose becomes a node of its own with `_target_`.
    """
    parser = ArgumentParser(exit_on_error=False)
    if inspect.isclass(target):
        parser.add_class_arguments(target, "it", fail_untyped=False)
    else:
        parser.add_function_arguments(target, "it", fail_untyped=False)
    defaults = parser.get_defaults()
    values = defaults.it.as_dict() if "it" in defaults else {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.default is parameter.empty and name in values:
            values[name] = MISSING
    values = _to_target(values)
    return {"_target_": f"{target.__module__}.{target.__qualname__}", **values} if inspect.isclass(target) else values


def _to_target(node: Any) -> Any:
    if isinstance(node, dict) and "class_path" in node:
        return {"_target_": node["class_path"], **_to_target(node.get("init_args", {}))}
    if isinstance(node, dict):
        return {key: _to_target(value) for key, value in node.items()}
    return [_to_target(item) for item in node] if isinstance(node, list | tuple) else node


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
        "optimizer": classes("lit_gans.optim", Optimizer),
        "schedule": classes("lit_gans.optim", Schedule),
        "model/_schema": classes("lit_gans.models", AdversarialModule),
        "data/_schema": classes("lit_gans.data", LightningDataModule),
        "callbacks/_schema": classes("lit_gans.callbacks", Callback),
        "metrics/_schema": classes("lit_gans.metrics", Extractor),
        "logger/_schema": classes("lit_gans.loggers", Logger) | loggers,
        "trainer/_schema": {"trainer": Trainer},
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
    from lit_gans.launch import refusals, register_resolvers

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
        return config
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
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
    return module, data, trainer


@contextmanager
def trainer_refusals() -> Iterator[None]:
    """Turns what the Trainer's constructor cannot do, and what it would do otherwise than asked, into `RefusedInput`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AMP with fp16 is not supported on CPU.*")
        try:
            yield
        except UserWarning as error:
            raise RefusedInput(
                "precision=fp16 needs a CUDA device: on a CPU Lightning would silently compute in bf16; use"
                " precision=bf16 or precision=fp32."
            ) from error
        except (MisconfigurationException, ValueError, RuntimeError) as error:
            raise RefusedInput(f"trainer: {' '.join(str(error).split())}") from error


def construct(node: dict[str, Any], key: str) -> Any:
    """Checks and constructs a `class_path` / `init_args` node and those inside it; `key` names it in errors."""
    cls = _class(node["class_path"], key)
    return call(cls, _accepted(cls, node["init_args"], key), key)


def call(target: type | Callable[..., Any], arguments: dict[str, Any], key: str = "") -> Any:
    """Calls a class or function with plain arguments, each checked against the signature and nodes constructed."""
    prefix = f"{key}." if key else ""
    inner = {name: _construct_inside(value, f"{prefix}{name}") for name, value in arguments.items() if _has_node(value)}
    plain = {name: value for name, value in arguments.items() if name not in inner}
    parser = ArgumentParser(exit_on_error=False)
    preset = target.keywords if isinstance(target, partial) else {}
    plain = {name: value for name, value in plain.items() if name not in preset}
    bare = target.func if isinstance(target, partial) else target
    add = parser.add_class_arguments if inspect.isclass(bare) else parser.add_function_arguments
    add(bare, "it", fail_untyped=False, skip={*inner, *preset})
    try:
        values = parser.parse_object({"it": plain}).it.as_dict() if plain else {}
        return target(**values, **inner)
    except RefusedInput as error:
        raise RefusedInput(f"{key}: {error}" if key else str(error)) from error
    except ArgumentError as error:
        raise RefusedInput(_sentence(prefix, plain, str(error))) from error
    except ModuleNotFoundError as error:
        extra = next((extra for module, extra in _EXTRAS.items() if module in str(error)), None)
        advice = install_command(extra) if extra else f"install {error.name}."
        raise RefusedInput(f"{key}: a package is missing ({str(error).splitlines()[0].split('. ')[0]}); {advice}") from error


def _class(path: str, key: str) -> type:
    try:
        return get_class(path)
    except Exception as error:  # Hydra wraps whatever the import raised
        raise RefusedInput(f"{key}: {path} cannot be imported: {str(error).splitlines()[0]}") from error


def _accepted(cls: type, init_args: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns the arguments that `cls` has. A group option that replaces an optimizer or schedule by another merges
    over the arguments of the first (Adam's betas under RMSprop): those are dropped, anything else is refused.
    """
    names = [name for name in schema(cls) if name != "_target_"]
    unknown = [name for name in init_args if name not in names]
    if unknown and not issubclass(cls, Optimizer | Schedule):
        raise RefusedInput(f"{key}.{unknown[0]}: {cls.__name__} has no such argument; {nearest(unknown[0], names)}")
    return {name: value for name, value in init_args.items() if name in names}


def _has_node(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_node(item) for item in value)
    return isinstance(value, dict) and "class_path" in value


def _construct_inside(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_construct_inside(item, f"{key}[{index}]") for index, item in enumerate(value)]
    return construct(value, key) if _has_node(value) else value


def _sentence(prefix: str, values: dict[str, Any], report: str) -> str:
    """Turns jsonargparse's report of one wrong value into a sentence."""
    name = re.search(r'key "it\.([^"]+)"', report)
    found = re.findall(r"Expected an? (.*?)(?:\. Got value.*)?\s*$", report, flags=re.M)
    expected = " or ".join(dict.fromkeys(_readable(text) for text in found))
    if name is None or not expected:
        return f"{prefix}{' '.join(report.split())}"
    return f"{prefix}{name[1]}={values.get(name[1].partition('.')[0])!r} is not valid: expected {expected}."


def _readable(text: str) -> str:
    return re.sub(r"<class '([\w.]+)'>", r"\1", text).replace("typing.", "").replace("NoneType", "null")
