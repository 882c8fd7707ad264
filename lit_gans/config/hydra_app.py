"""Hydra with schemas from classes: composed configurations for notebooks, and commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lit_gans.common._compat.hydra import run_hydra
from lit_gans.common.errors import RefusedInput, nearest, one_line
from lit_gans.config import source
from lit_gans.config.hints import did_you_mean
from lit_gans.config.overrides import (
    is_literal,
    key_of,
    quoted,
    refuse_bare,
    refuse_missing_folders,
    refuse_options,
    with_classes,
)
from lit_gans.config.refusals import DONE, GROUPS, refusals, refused_is_2
from lit_gans.config.signatures import schema, target_class, text_arguments

CONFIG_PACKAGE = "lit_gans.conf"
_OPTIONS = {"model": "dcgan", "data": "folder"}  # of commands that require one
_TEXT_KEYS = ("resume", "init_from", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")  # not in a class


def compose(*overrides: str, config_name: str = "train") -> DictConfig:
    """Composes a configuration, as `lit-gans train` does: `compose("model=dcgan", "data.batch_size=32")`.

    Raises:
        RefusedInput: an override names an unknown key or option; suggests the nearest valid name.
    """
    if not all(isinstance(override, str) for override in overrides):
        raise RefusedInput("compose takes overrides as text: compose('model=dcgan', 'data=digits').")
    groups = Groups(config_name, list(overrides))
    with refusals(groups.composed):
        try:
            return _compose(config_name, with_classes(quoted(list(overrides), groups.is_text)))
        except (HydraException, OmegaConfBaseException):
            raise
        except (TypeError, ValueError) as error:  # such as a list of defaults that is none
            raise RefusedInput(f"the configuration cannot be composed: {one_line(error)}.") from error


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    source.register()
    GlobalHydra.instance().clear()
    with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
        return hydra_compose(config_name, overrides)


def hydra_command(
    config_name: str,
    job: Callable[[DictConfig], Any],
    arguments: list[str],
    function: Callable[..., Any] | None = None,
) -> int:
    """Composes a configuration from `arguments`, runs `job` with it and returns the exit code.

    Args:
        config_name: name of the primary configuration.
        job: called with the configuration, once for each combination in a sweep; returns an exit code or None.
        arguments: overrides and Hydra's own options.
        function: function whose signature defines the configuration, for commands other than training.
    """
    codes: list[int] = []

    started: list[bool] = []

    def caught(config: DictConfig) -> None:  # inside the job, so that an invalid run does not end a sweep
        started.append(True)
        codes.append(refused_is_2(lambda: job(config) or DONE))

    def run() -> int:
        if function is not None:
            ConfigStore.instance().store(name=config_name, node=_primary(function))
        groups = Groups(config_name, arguments, function)
        refuse_words(arguments, groups, function)
        source.register()
        with refusals(groups.composed):
            try:
                run_hydra(with_classes(quoted(arguments, groups.is_text)), caught, CONFIG_PACKAGE, config_name)
            except (TypeError, ValueError) as error:
                if started:
                    raise
                raise RefusedInput(_not_composed(error, arguments)) from error
        return max(codes, default=DONE)

    return refused_is_2(run)


def _primary(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the primary configuration of a function: its arguments, of which those named as groups are options."""
    arguments = schema(function)
    groups = [name for name in ("model", "data", "metrics") if name in arguments]
    shared: dict[str, Any] = {"seed": 0} if groups else {}
    if "model" in groups and "data" not in groups:
        shared["data"] = {"image_size": 64, "channels": 3}  # the sizes of the model
    options = [{name: _OPTIONS[name] if arguments[name] == MISSING else None} for name in groups]
    quiet = [{f"override hydra/{name}_logging": "none"} for name in ("job", "hydra")]
    hydra = {"job": {"name": "lit-gans"}, "run": {"dir": "."}, "output_subdir": None}
    return {"defaults": ["_self_", *options, *quiet], "hydra": hydra, **shared, **arguments}


def _not_composed(error: Exception, arguments: list[str]) -> str:
    """Returns the sentence for an error of Hydra's that is none of its own."""
    for argument in arguments:
        key, value = key_of(argument), argument.partition("=")[2]
        if key in GROUPS and is_literal(value):
            folder = files(CONFIG_PACKAGE) / key  # groups of classes have none
            names = [path.name.removesuffix(".yaml") for path in folder.iterdir()] if folder.is_dir() else []
            advice = f"; {nearest(value, names)}" if names else "."
            return f"{argument} is not valid: expected the name of an option, {key}=NAME{advice}"
    return f"the overrides cannot be composed: {str(error).splitlines()[0]}."


def refuse_words(arguments: list[str], groups: Groups, function: Callable[..., Any] | None = None) -> None:
    """Raises `RefusedInput` for command-line arguments that are neither `key=value` nor options of Hydra.

    Args:
        arguments: command-line arguments.
        groups: configuration of their groups.
        function: see `hydra_command`.
    """
    refuse_options(arguments, lambda key, value: did_you_mean(key, groups.composed(), value))
    refuse_bare(arguments, lambda word: _key_for(word, function))
    refuse_missing_folders(arguments)


def _key_for(word: str, function: Callable[..., Any] | None) -> str:
    """Returns the key that a value without a key most likely belongs to."""
    if function is None:
        return "resume" if word.endswith(".ckpt") else "model" if source.option(f"model/{word}") else "experiment"
    first = next(iter(schema(function)))
    return "data.root" if first == "data" and source.option(f"data/{word}") is None else first


class Groups:
    """Configuration of the chosen groups without overridden values, which determines the keys and their types.

    Args:
        config_name: name of the primary configuration.
        arguments: command-line arguments.
        function: function whose arguments are top-level keys.
    """

    def __init__(self, config_name: str, arguments: list[str], function: Callable[..., Any] | None = None) -> None:
        self._config_name, self._function = config_name, function
        self._groups = [item for item in arguments if self._chooses(item)]
        self.composed = cache(self._composed)

    def _chooses(self, argument: str) -> bool:
        key = key_of(argument)
        if key is None or key in _TEXT_KEYS or key == "seed":
            return key == "hydra.searchpath"
        values = schema(self._function) if self._function else {}
        return key == "hydra.searchpath" or "@" in key or ("." not in key and values.get(key) is None)

    def _composed(self) -> Any:
        bare = [item for item in self._groups if item.startswith("hydra.searchpath=")]
        for kept in (self._groups, *([item for item in self._groups if item != left] for left in self._groups), bare):
            try:
                return _compose(self._config_name, with_classes(kept))
            except (HydraException, OmegaConfBaseException, RefusedInput, YAMLError, TypeError, ValueError):
                continue
        return OmegaConf.create({})

    def is_text(self, key: str, value: str) -> bool:
        """Whether a key takes a value as text or a path; where a dict is possible too, `{...}` is one."""
        parent, _, name = key.rpartition(".")
        if not parent:
            return key in _TEXT_KEYS or (self._function is not None and key in text_arguments(self._function))
        if key in _TEXT_KEYS:
            return True
        node = OmegaConf.select(self.composed(), parent)
        values = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else {}
        path = values.get("_target_") if isinstance(values, dict) else None
        try:
            return path is not None and name in text_arguments(target_class(path, parent), not value.startswith("{"))
        except RefusedInput:  # no class yet: another argument may name it
            return False
