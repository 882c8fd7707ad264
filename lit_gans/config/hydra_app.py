"""Composes configurations with Hydra and with schemas from classes, and runs commands with these configurations."""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from lit_gans.common.errors import RefusedInput, install_command, nearest
from lit_gans.config.completed import experiment_file, with_defaults
from lit_gans.config.groups import CONFIG_PACKAGE, GROUPS, SEARCH_PATH, group_of, option, options, register
from lit_gans.config.mistakes import DONE, error_message, exit_with_2
from lit_gans.config.overrides import SWEEP_FLAGS, key_of, quoted, replacing_nodes, value_of, with_search_path
from lit_gans.config.registry import IMPORT_VARIABLE, without_loss
from lit_gans.config.signatures import is_node, schema, target_class, without_remains
from lit_gans.training.optim import OptimizerConfig

logger = logging.getLogger(__name__)

_COMBINED = ("callbacks", "logger")  # groups of which Hydra combines a list of options
_IN_WORDS = (  # messages of Hydra that do not say what would be right, and what we say instead
    (r"Could not append to config\. An item is already at '(.*?)'", r"there is a key '\1' already; write \1=VALUE."),
    (r"(\S+) appears more than once in the final defaults list", r"there is a key '\1' already; write \1=VALUE."),
    (r"Could not delete (?:from config\. )?'(.*?)'", r"there is no '\1' to remove."),
    (r"Ambiguous value for argument '(.*?)'", r"\1: lit-gans train -m trains each value; a list has brackets: [A,B]."),
)
_OPTIONS = {"model": "dcgan", "data": "folder"}  # default options for commands that require a model or data


def compose(*overrides: str, config_name: str = "train") -> DictConfig:
    """Composes a configuration like `lit-gans train`, for example `compose("model=dcgan", "data.batch_size=32")`.

    Like the command, it chooses an experiment if no experiment, model or data is set, and metrics that suit the data.

    Raises:
        RefusedInput: If an override has an unknown key or option. The message suggests the nearest valid name.
    """
    arguments = [*overrides]
    if config_name == "train":
        arguments, notices = with_defaults(arguments)
        arguments = experiment_file(arguments)
        for notice in notices:
            logger.warning(notice)
    with _errors_with_hints(config_name, arguments):
        return _compose(config_name, replacing_nodes(quoted(arguments)))


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):
        config = hydra_compose(config_name, with_search_path(overrides, last=SEARCH_PATH))
        _log_dropped_settings(config_name, config, with_search_path(overrides, last=SEARCH_PATH))
    _drop_leftovers(config, overrides)
    _refuse_without_effect(config, overrides)
    _refuse_unused_keys(config, overrides, overrides, _known_keys(config_name, overrides))
    return config


def hydra_command(
    config_name: str, job: Callable[[DictConfig], int | tuple[int, float | None] | None], arguments: list[str]
) -> int:
    """Composes a configuration from `arguments`, runs `job` with it, and returns the exit code.

    Args:
        config_name: name of the primary configuration.
        job: function that is called with the configuration, in a sweep once per combination. Returns an exit code, or
            None for 0, or a tuple of an exit code and a score for a Hydra sweeper. The score is None for a job without
            a score.
        arguments: overrides and Hydra's flags.
    """
    codes: list[int] = []
    scores: list[float] = []
    failures: list[Exception] = []
    known: list[str] = []

    def run_job(config: DictConfig) -> float | None:
        # the score of a failed job is None: Optuna's sweeper continues after None, but NaN would end the sweep
        score: float | None = None

        def checked() -> int:
            nonlocal score
            overrides = HydraConfig.get().overrides.task
            _log_dropped_settings(config_name, config, [*HydraConfig.get().overrides.hydra, *overrides])
            _drop_leftovers(config, overrides)
            _refuse_without_effect(config, overrides)
            _refuse_unused_keys(config, overrides, arguments, known)
            result = job(config)
            code, score = result if isinstance(result, tuple) else (result or DONE, None)
            scores.extend([] if score is None else [score])
            return code

        try:
            codes.append(exit_with_2(checked))  # handled per job, so that an invalid job does not end a sweep
        except Exception as error:
            failures.append(error)
            raise
        return score

    def run() -> int:
        if config_name != "train" and {*SWEEP_FLAGS} & {*arguments}:
            raise RefusedInput("-m sweeps trainings only (lit-gans train -m): run this command once for each value.")
        register()
        with _errors_with_hints(config_name, arguments, failures):
            known.extend(_known_keys(config_name, arguments))
            try:
                overrides = replacing_nodes(quoted(arguments))
                run_hydra(with_search_path(overrides, last=SEARCH_PATH), run_job, CONFIG_PACKAGE, config_name)
            except ValueError:
                if failures or scores or DONE in codes or not codes:
                    raise
                print("lit-gans: every job of the sweep has failed, so that none is the best.", file=sys.stderr)
        return max(codes, default=DONE)

    return exit_with_2(run)


def function_config(function: Callable[..., Any]) -> str:
    """Stores the configuration that a function's signature defines, and returns the name of the configuration.

    The keys are the arguments of the function. If an argument has the name of a configuration group, such as `model`,
    its value selects an option of the group.
    """
    arguments = schema(function)
    groups = [name for name in arguments if name in GROUPS]
    shared: dict[str, Any] = {"seed": 0} if groups else {}
    if "model" in groups and "data" not in groups:
        shared["data"] = {"image_size": 64, "channels": 3}  # the model interpolates these keys
    options = [{name: _OPTIONS[name] if arguments[name] == MISSING else None} for name in groups]
    quiet = [{f"override hydra/{name}_logging": "none"} for name in ("job", "hydra")]
    hydra = {"job": {"name": "lit-gans"}, "run": {"dir": "."}, "output_subdir": None}
    node = {"defaults": ["_self_", *options, *quiet], "hydra": hydra, **shared, **arguments}
    ConfigStore.instance().store(name=function.__name__, node=node)
    return function.__name__


def _drop_leftovers(config: DictConfig, overrides: Sequence[str]) -> None:
    """Removes the settings of an experiment that belong to options which `none` or `auto` have replaced.

    With `callbacks=none`, only callbacks that overrides set are kept. With `strategy=auto`, the arguments of the
    experiment's strategy are removed.
    """
    typed = [(key_of(override) or "").rpartition("@")[2] for override in overrides]
    if "callbacks=none" in overrides:
        kept = {key.split(".")[1] for key in typed if key.startswith("callbacks.")}
        config.callbacks = {name: node for name, node in config.callbacks.items_ex(resolve=False) if name in kept}
    is_set = any(key.startswith("trainer.strategy") for key in typed)
    if "strategy=auto" in overrides and not is_set:
        config.trainer.strategy = "auto"


def _log_dropped_settings(config_name: str, config: DictConfig, overrides: Sequence[str]) -> None:
    """Logs the settings of an optimizer that a name replaces, such as `model.generator_optimizer=AdamW`."""
    for override in overrides:
        key = key_of(override) or ""
        if not re.fullmatch(r"model\.\w+_optimizer", key) or not isinstance(OmegaConf.select(config, key), str):
            continue
        previous: Any = OmegaConf.select(
            hydra_compose(config_name, [each for each in overrides if each != override]), key
        )
        if not isinstance(previous, DictConfig):
            continue
        values: Any = OmegaConf.to_container(previous)
        defaults = schema(OptimizerConfig(values["name"]))
        changed = [name for name, value in values.items() if value is not None and value != defaults.get(name)]
        shown = [name if is_node(values[name]) else f"{name}={values[name]}" for name in changed]
        if shown:
            logger.info(
                "%s drops %s of %s; %s.name=%s keeps them",
                override,
                ", ".join(shown),
                values["name"],
                key,
                value_of(override),
            )


def _refuse_without_effect(config: DictConfig, overrides: Iterable[str]) -> None:
    """Raises `RefusedInput` for overrides without effect.

    An option has no effect if an experiment sets another class, because Hydra merges an experiment over the options
    that are selected by group. An argument has no effect if it belongs to an optimizer or schedule that was replaced.
    """
    for override in overrides:
        group, _, place = (key_of(override) or "").partition("@")
        if not place:
            _refuse_dropped_argument(config, override)
            continue
        selected, node = option(f"{group}/{value_of(override)}"), OmegaConf.select(config, place)
        if selected is None or not isinstance(node, DictConfig) or "_target_" not in node:
            continue
        expected = schema(selected)
        is_same = target_class(node._target_, place) is target_class(expected["_target_"], place)
        if not is_same or node.get("name") != expected.get("name"):
            raise RefusedInput(
                f"{override} has no effect, because another value sets the class of {place}: write `override"
                f" /{group}@{place}: NAME` in the defaults of a file instead, or set {place}._target_=CLASS."
            )


def _known_keys(config_name: str, arguments: Iterable[str]) -> list[str]:
    """Returns the keys at the top level of a configuration, or an empty list if no argument adds a key."""
    adds = any(argument.startswith("+") for argument in arguments)
    return [str(key) for key in _compose(config_name, [])] if adds else []


def _refuse_unused_keys(
    config: DictConfig, overrides: Iterable[str], arguments: Iterable[str], known: Collection[str]
) -> None:
    """Raises `RefusedInput` for a new key such as `+minutes=60` at the top level that no interpolation reads.

    Args:
        config: composed configuration.
        overrides: overrides of the configuration.
        arguments: all arguments, in which an interpolation can read the key, such as `hydra.run.dir=runs/${name}`.
        known: result of `_known_keys`.
    """
    text = " ".join([OmegaConf.to_yaml(config), *arguments]) if known else ""
    for override in overrides if known else ():
        key = key_of(override) or ""
        key = (key.partition("@")[2] or key).partition(".")[0]
        is_new = override.startswith("+") and key in config and key not in known
        if is_new and not re.search(r"\$\{\.*" + re.escape(key) + r"\b", text):
            raise RefusedInput(f"{override} has no effect: there is no key {key!r}; {nearest(key, known)}")


def _refuse_dropped_argument(config: DictConfig, override: str) -> None:
    parent, _, name = (key_of(override) or "").rpartition(".")
    node = OmegaConf.select(config, parent) if parent else None
    if not isinstance(node, DictConfig) or "_target_" not in node or name == "_target_":
        return
    if name == "decay" and node.get("half_life") is not None:  # of `EMA`
        raise RefusedInput(
            f"{override} has no effect, because {parent}.half_life is set, and replaces it: set {parent}.half_life,"
            f" or add {parent}.half_life=null."
        )
    arguments: Any = OmegaConf.to_container(node)
    target = arguments.pop("_target_")
    known = without_remains(target_class(target, parent), arguments)
    if name in arguments and name not in known:
        owner = arguments.get("name", target.rpartition(".")[2])
        raise RefusedInput(f"{override} has no effect: {owner} has no such argument; {nearest(name, known)}")


@contextmanager
def _errors_with_hints(
    config_name: str, arguments: Sequence[str], failures: Sequence[Exception] = ()
) -> Iterator[None]:
    """Context manager that converts errors of Hydra and OmegaConf to `RefusedInput`, with the nearest valid names.

    Args:
        config_name: name of the primary configuration.
        arguments: command-line arguments.
        failures: errors that the job raised. These errors are not converted.
    """
    for argument in arguments:
        _refuse_malformed(argument)
        _refuse_no_option(argument)
        _refuse_several_options(config_name, argument)
    try:
        yield
    except Exception as error:
        if error in failures or isinstance(error, RefusedInput):
            raise
        if isinstance(error, AssertionError):  # Hydra raises this error without a message
            raise RefusedInput("hydra.mode=MULTIRUN in a file starts no sweep: add -m to the command line.") from error
        _refuse_bare(config_name, arguments)
        hint = _hint(error, config_name, arguments)
        text = error_message(error).rstrip(".")
        for pattern, words in _IN_WORDS:
            if match := re.match(pattern, text):
                raise RefusedInput(match.expand(words)) from error
        unknown = re.match(r"Could not override '(.*?)'\. To append", text)
        group = re.match(r"Could not override '(.*?)'\. (?:No match|Did you mean to override (one of )?(.*?)\?)", text)
        if group:
            text = f"{config_name} has no key {group[1]!r}"
            hint = _hint_for_group(config_name, group[1], group[3] if group[2] else "")
        elif unknown:
            missing = str(getattr(error.__cause__, "full_key", None) or unknown[1])
            text = f"there is no key {missing!r}"
            adds = f"to add an object, write +{unknown[1]}=CLASS." if unknown[1].endswith("._target_") else ""
            hint = adds or hint or f"lit-gans {config_name} --help lists the keys."
        raise RefusedInput(f"{text}{f'; {hint}' if hint else '.'}") from error


def _refuse_no_option(argument: str) -> None:
    """Raises `RefusedInput` for `GROUP=null`, which Hydra does not accept, and for the removal of a required group."""
    key, _, place = (key_of(argument) or argument.removeprefix("~")).partition("@")
    if key not in GROUPS or (not argument.startswith("~") and not argument.endswith("=null")):
        return
    remedies = {"schedule": "constant", "strategy": "auto", "precision": "fp32"}
    remedy = "none" if "none" in options(key) else remedies.get(key)
    if argument.startswith("~") and (place or remedy):
        return
    if remedy is not None:
        how = f"use {argument.partition('=')[0]}={remedy}"
    elif key == "score":
        how = f"use {place}=null"
    else:
        how = f"leave it out, or choose an option with {argument.strip('~').partition('=')[0]}=NAME"
    raise RefusedInput(f"{argument} is not valid: {how}.")


def _refuse_malformed(argument: str) -> None:
    """Raises `RefusedInput` for an argument with a value whose key no configuration can have."""
    key, equals, _ = argument.partition("=")
    if equals and not argument.startswith("-") and (key_of(argument) is None or key.lstrip("+~").startswith("@")):
        raise RefusedInput(f"{argument}: {key!r} is no key: settings are given as KEY=VALUE.")


def _refuse_several_options(config_name: str, argument: str) -> None:
    """Raises `RefusedInput` for a list of options of a group whose options cannot be combined."""
    key, value = key_of(argument), argument.partition("=")[2]
    if key in GROUPS and key not in _COMBINED and value.startswith("["):
        each = f"; to train each, write -m {key}={value.strip('[]')}" if config_name == "train" else ""
        raise RefusedInput(f"{argument}: {key} is one option, not a list{each}.")


def _refuse_bare(config_name: str, arguments: Sequence[str]) -> None:
    """Raises `RefusedInput` for an argument without a key, such as a path, unless flags can take it as their value."""
    bare = [item for item in arguments if "=" not in item and not item.startswith("~")]
    if bare and not any(item.startswith("-") for item in bare):
        required = sorted(OmegaConf.missing_keys(_compose(config_name, [])))
        example = f", such as {required[0]}={bare[0]}" if required else ""
        raise RefusedInput(f"{bare[0]}: settings are given as KEY=VALUE{example}.")


def _hint(error: Exception, config_name: str, arguments: Sequence[str]) -> str:
    """Returns a hint with the nearest valid names for an unknown option or key, or an empty string."""
    if not (isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file):
        return _nearest_keys(config_name, arguments)
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    unfinished = without_loss().get(name) if group == "model" else None
    if unfinished is not None:
        return f"{unfinished.__name__} is no GAN, because it does not define generator_loss."
    if os.path.isfile(f"{name}.py"):
        return f"set {IMPORT_VARIABLE}={name} before the command to import {name}.py."
    names = nearest(name, [option for option in error.options if not option.startswith("_")])
    if group in ("hydra/sweeper", "hydra/launcher") and not names.startswith("did you mean"):
        plugin = f"hydra-{name.partition('_')[0]}-{group.rpartition('/')[2]}"
        how = install_command(name) if name == "optuna" else f"install one with: python -m pip install {plugin}"
        return f"{names} Hydra plugins provide more; {how}"
    return names


def _nearest_keys(config_name: str, arguments: Sequence[str]) -> str:
    """Returns a hint for the first argument with an unknown key: keys of the same name or of similar spelling."""
    selecting = [
        item for item in arguments if item.startswith(("+", "hydra.searchpath=")) or group_of(item.partition("=")[0])
    ]
    keys = _keys_of(config_name, selecting)
    if not keys:
        return ""
    for argument in arguments:
        key = argument.lstrip("+~-").partition("=")[0].replace("-", "_")
        if not key or key in keys or group_of(key) or key.startswith("hydra"):
            continue
        group = key.partition(".")[0]
        if group in GROUPS and not any(name.startswith(f"{group}.") for name in keys):
            return f"it is a key of an option: also set {group}=NAME."
        last = key.rpartition(".")[2]
        matches = [name for name in keys if name.rpartition(".")[2] == last][:3]
        matches = matches or difflib.get_close_matches(key, [*keys, *GROUPS], n=1)
        if matches:
            return f"did you mean {' or '.join(map(repr, matches))}?"
    return ""


def _hint_for_group(config_name: str, group: str, places: str) -> str:
    """Returns a hint for a group that a command does not have: its places, how to add it, or the command's keys.

    Args:
        config_name: name of the command.
        group: group, with `@` and its place if the user specified one.
        places: the group with each place that the command has; may be empty.
    """
    if places:
        return f"did you mean {places}?"
    if "@" in group:
        return f"to add it, write +{group}=NAME."
    keys = [key for key in _keys_of(config_name) if key.startswith(f"{group}.")]
    return f"it has {', '.join(keys)}." if keys else f"lit-gans {config_name} --help lists the keys."


def _keys_of(config_name: str, overrides: Sequence[str] = ()) -> list[str]:
    """Returns the dotted names of all keys of a command, or an empty list if an override is invalid."""
    try:
        return _keys(OmegaConf.to_container(_compose(config_name, [*overrides]), resolve=False))
    except Exception:  # a selected option is invalid, so the valid keys are unknown
        return []


def _keys(node: Any, prefix: str = "") -> list[str]:
    """Returns the dotted names of all keys of a configuration."""
    if not isinstance(node, dict):
        return []
    return [name for key, value in node.items() for name in (f"{prefix}{key}", *_keys(value, f"{prefix}{key}."))]
