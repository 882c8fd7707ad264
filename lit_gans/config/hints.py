"""Converts errors of Hydra and OmegaConf into sentences that say what would be right, with the nearest valid names."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from lit_gans.common.errors import RefusedInput, install_command, nearest
from lit_gans.config.composition import composed
from lit_gans.config.groups import GROUPS, group_of, options
from lit_gans.config.mistakes import error_message
from lit_gans.config.overrides import key_of
from lit_gans.config.registry import IMPORT_VARIABLE, without_loss

_COMBINED = ("callbacks", "logger")  # groups of which Hydra combines a list of options
_IN_WORDS = (  # messages of Hydra that do not say what would be right, and what we say instead
    (r"Could not append to config\. An item is already at '(.*?)'", r"there is a key '\1' already; write \1=VALUE."),
    (r"(\S+) appears more than once in the final defaults list", r"there is a key '\1' already; write \1=VALUE."),
    (r"Could not delete (?:from config\. )?'(.*?)'", r"there is no '\1' to remove."),
    (r"Ambiguous value for argument '(.*?)'", r"\1: lit-gans train -m trains each value; a list has brackets: [A,B]."),
)


@contextmanager
def errors_with_hints(config_name: str, arguments: Sequence[str], failures: Sequence[Exception] = ()) -> Iterator[None]:
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
        text = error_message(error).rstrip(".")
        for pattern, words in _IN_WORDS:
            if match := re.match(pattern, text):
                raise RefusedInput(match.expand(words)) from error
        group = re.match(r"Could not override '(.*?)'\. (?:No match|Did you mean to override (one of )?(.*?)\?)", text)
        if group:
            hint = _hint_for_group(config_name, group[1], group[3] if group[2] else "")
            raise RefusedInput(f"{config_name} has no key {group[1]!r}; {hint}") from error
        hint = _hint(error, config_name, arguments)
        unknown = re.match(r"Could not override '(.*?)'\. To append", text)
        if unknown:
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
    """Raises `RefusedInput` for an argument with a value whose key Hydra cannot parse."""
    key, equals, _ = argument.partition("=")
    is_key = key_of(argument) is not None and key.isascii() and not key.lstrip("+~").startswith("@")
    if equals and not argument.startswith("-") and not is_key:
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
        required = sorted(OmegaConf.missing_keys(composed(config_name, [])))
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
        return _keys(OmegaConf.to_container(composed(config_name, [*overrides]), resolve=False))
    except Exception:  # a selected option is invalid, so the valid keys are unknown
        return []


def _keys(node: Any, prefix: str = "") -> list[str]:
    """Returns the dotted names of all keys of a configuration."""
    if not isinstance(node, dict):
        return []
    return [name for key, value in node.items() for name in (f"{prefix}{key}", *_keys(value, f"{prefix}{key}."))]
