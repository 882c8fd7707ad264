"""Hydra with schemas from classes: composed configurations for notebooks, and commands."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException
from omegaconf import MISSING, DictConfig, OmegaConf

from lit_gans.common._compat.hydra import run_hydra
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.groups import CONFIG_PACKAGE, GROUPS, SEARCH_PATH, group_of, option, register
from lit_gans.config.mistakes import DONE, refused_is_2, said
from lit_gans.config.overrides import key_of, quoted, value_of, with_search_path
from lit_gans.config.registry import IMPORT_VARIABLE
from lit_gans.config.signatures import schema, target_class, without_remains

_OPTIONS = {"model": "dcgan", "data": "folder"}  # of commands that require one


def compose(*overrides: str, config_name: str = "train") -> DictConfig:
    """Composes a configuration, as `lit-gans train` does: `compose("model=dcgan", "data.batch_size=32")`.

    Raises:
        RefusedInput: an override names an unknown key or option; suggests the nearest valid name.
    """
    with _as_said(config_name, overrides):
        return _compose(config_name, quoted([*overrides]))


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
        config = hydra_compose(config_name, with_search_path(overrides, last=SEARCH_PATH))
    _refuse_without_effect(config, overrides)
    return config


def hydra_command(
    config_name: str, job: Callable[[DictConfig], int | tuple[int, float | None] | None], arguments: list[str]
) -> int:
    """Composes a configuration from `arguments`, runs `job` with it and returns the exit code.

    Args:
        config_name: name of the primary configuration.
        job: called with the configuration, once for each combination in a sweep; returns an exit code, None for 0, or
            an exit code and the score that a sweeper of Hydra optimizes, None for a job without a score.
        arguments: overrides and Hydra's own options.
    """
    codes: list[int] = []
    failures: list[Exception] = []

    def caught(config: DictConfig) -> float | None:  # inside the job, so that an invalid run does not end a sweep
        scores: list[float | None] = [None]  # of a job that fails: Optuna's sweeper ends at NaN, and goes on at None

        def checked() -> int:
            _refuse_without_effect(config, HydraConfig.get().overrides.task)
            ended = job(config)
            code, scores[0] = ended if isinstance(ended, tuple) else (ended or DONE, None)
            return code

        try:
            codes.append(refused_is_2(checked))
        except Exception as error:
            failures.append(error)
            raise
        return scores[0]

    def run() -> int:
        register()
        with _as_said(config_name, arguments, failures):
            run_hydra(with_search_path(quoted(arguments), last=SEARCH_PATH), caught, CONFIG_PACKAGE, config_name)
        return max(codes, default=DONE)

    return refused_is_2(run)


def function_config(function: Callable[..., Any]) -> str:
    """Stores the configuration that a function's signature defines, and returns its name.

    Its keys are the arguments, of which those named as groups take the name of an option.
    """
    arguments = schema(function)
    groups = [name for name in arguments if name in GROUPS]
    shared: dict[str, Any] = {"seed": 0} if groups else {}
    if "model" in groups and "data" not in groups:
        shared["data"] = {"image_size": 64, "channels": 3}  # the sizes of the model
    options = [{name: _OPTIONS[name] if arguments[name] == MISSING else None} for name in groups]
    quiet = [{f"override hydra/{name}_logging": "none"} for name in ("job", "hydra")]
    hydra = {"job": {"name": "lit-gans"}, "run": {"dir": "."}, "output_subdir": None}
    node = {"defaults": ["_self_", *options, *quiet], "hydra": hydra, **shared, **arguments}
    ConfigStore.instance().store(name=function.__name__, node=node)
    return function.__name__


def _refuse_without_effect(config: DictConfig, overrides: Iterable[str]) -> None:
    """Raises `RefusedInput` for overrides that nothing reads: an option whose class another value sets, since Hydra
    merges the values of an experiment over the options that are chosen by group, or an argument of an optimizer or
    schedule that was replaced.
    """
    for override in overrides:
        group, _, place = (key_of(override) or "").partition("@")
        if not place:
            _refuse_remains(config, override)
            continue
        chosen, node = option(f"{group}/{value_of(override)}"), OmegaConf.select(config, place)
        if chosen is None or not isinstance(node, DictConfig) or "_target_" not in node:
            continue
        wanted = schema(chosen)
        same = target_class(node._target_, place) is target_class(wanted["_target_"], place)
        if not same or node.get("name") != wanted.get("name"):
            raise RefusedInput(
                f"{override} has no effect, since another value sets the class of {place}: write in a file's defaults"
                f" `override /{group}@{place}: NAME` instead, or give {place}._target_=CLASS."
            )


def _refuse_remains(config: DictConfig, override: str) -> None:
    parent, _, name = (key_of(override) or "").rpartition(".")
    node = OmegaConf.select(config, parent) if parent else None
    if not isinstance(node, DictConfig) or "_target_" not in node or name == "_target_":
        return
    given: Any = OmegaConf.to_container(node)
    target = given.pop("_target_")
    known = without_remains(target_class(target, parent), given)
    if name in given and name not in known:
        whose = given.get("name", target.rpartition(".")[2])
        raise RefusedInput(f"{override} has no effect: {whose} has no such argument; {nearest(name, known)}")


@contextmanager
def _as_said(config_name: str, arguments: Sequence[str], failures: Sequence[Exception] = ()) -> Iterator[None]:
    """Raises what Hydra and OmegaConf say of a configuration as `RefusedInput`, with the nearest valid names.

    Args:
        config_name: name of the primary configuration.
        arguments: command-line arguments.
        failures: errors of the job rather than of the configuration, which pass.
    """
    try:
        yield
    except Exception as error:
        if error in failures or isinstance(error, RefusedInput):
            raise
        if isinstance(error, AssertionError):  # Hydra's, without a text
            raise RefusedInput("hydra.mode=MULTIRUN in a file begins no sweep: add -m to the command line.") from error
        hint = _hint(error, config_name, arguments)
        text, new_key, how = said(error).rstrip(".").partition(". To append")  # most unknown keys are misspelled
        raise RefusedInput(f"{text}{f'; {hint}' if hint else '.'}{new_key[1:]}{how}") from error


def _hint(error: Exception, config_name: str, arguments: Sequence[str]) -> str:
    """Returns the nearest valid names for an option or a key that does not exist, or nothing."""
    if not (isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file):
        return _nearest_keys(config_name, arguments)
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if os.path.isfile(f"{name}.py"):
        return f"{IMPORT_VARIABLE}={name} before the command imports your {name}.py."
    names = nearest(name, [option for option in error.options if not option.startswith("_")])
    if group in ("hydra/sweeper", "hydra/launcher") and not names.startswith("did you mean"):
        plugin = f"hydra-{name.partition('_')[0]}-{group.rpartition('/')[2]}"
        return f"{names} Further ones are plugins, installed by: python -m pip install {plugin}"
    return names


def _nearest_keys(config_name: str, arguments: Sequence[str]) -> str:
    """Suggests keys of the same name, or of similar spelling, for the first argument whose key does not exist."""
    chosen = [
        item for item in arguments if item.startswith(("+", "hydra.searchpath=")) or group_of(item.partition("=")[0])
    ]
    try:
        keys = _keys(OmegaConf.to_container(_compose(config_name, chosen), resolve=False))
    except Exception:  # the choice of a group is the mistake
        return ""
    for argument in arguments:
        key = argument.lstrip("+~-").partition("=")[0].replace("-", "_")
        if not key or key in keys or group_of(key) or key.startswith("hydra"):
            continue
        group = key.partition(".")[0]
        if group in GROUPS and not any(name.startswith(f"{group}.") for name in keys):
            return f"it is a key of an option: give {group}=NAME too."
        last = key.rpartition(".")[2]
        found = [name for name in keys if name.rpartition(".")[2] == last][:3]
        found = found or difflib.get_close_matches(key, [*keys, *GROUPS], n=1)
        if found:
            return f"did you mean {' or '.join(map(repr, found))}?"
    return ""


def _keys(node: Any, prefix: str = "") -> list[str]:
    """Returns the dotted names of all keys of a configuration."""
    if not isinstance(node, dict):
        return []
    return [name for key, value in node.items() for name in (f"{prefix}{key}", *_keys(value, f"{prefix}{key}."))]
