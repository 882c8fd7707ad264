"""Refused input as one sentence: what Hydra and OmegaConf report, with the nearest valid name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lit_gans.common.errors import RefusedInput, nearest

DONE, FAILED, REFUSED = 0, 1, 2
_ALSO_CALLED = {"lr": "learning_rate", "steps": "max_steps", "iterations": "max_steps", "epochs": "max_epochs"}
_GROUPS_WITHOUT_KEY = ("experiment", "strategy", "precision")


def refused_is_2(command: Callable[[], int]) -> int:
    """Returns the exit code of `command`; refused input is one sentence on stderr and 2."""
    try:
        return command()
    except RefusedInput as error:
        print(f"lit-gans: {error}", file=sys.stderr)
        return REFUSED


@contextmanager
def refusals(composed: Callable[[], Any]) -> Iterator[None]:
    """Turns what Hydra and OmegaConf report while composing into one sentence with the nearest valid name.

    Args:
        composed: returns the configuration of the chosen groups without single values, which says what keys there are.
    """
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise RefusedInput(_sentence(error, composed)) from error


def _sentence(error: Exception, composed: Callable[[], Any]) -> str:
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={option}: there is no such {group}; {nearest(option, error.options)}"
    if isinstance(error, OverrideParseException):
        return f"'{error.override}' cannot be read as key=value: {text.splitlines()[0]}."
    override = re.search(r"Could not override '([^']+)'", text)
    if override:
        return f"{override[1]}: there is no such key; {nearest_key(override[1], composed())}"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    key = cause.full_key if isinstance(cause, OmegaConfBaseException) else None
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{key}: {lines[0]}" if key and key not in lines[0] else lines[0]


def nearest_key(key: str, config: Any) -> str:
    """Returns the ending of a sentence about a key that a configuration does not have.

    A near name beside it, else the same name elsewhere (`max_steps` is `trainer.max_steps`), else all names beside it.
    """
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    if not isinstance(node, DictConfig):
        return nearest_key(parent, config) if parent else "see --cfg job."
    names = [str(item) for item in node if item != "_target_"]
    if not names and list(node):  # a class of a user's own, whose arguments no schema knows
        return f"an argument of your own class takes a plus: +{key}=..."
    if not parent:
        names += _GROUPS_WITHOUT_KEY
    ending = nearest(name, names)
    if ending.startswith("did you mean"):
        return ending
    wanted = _ALSO_CALLED.get(name, name)
    elsewhere = [path for path in paths(node, parent) or paths(config) if path.rpartition(".")[2] == wanted]
    elsewhere = elsewhere or [path for path in paths(config) if path.rpartition(".")[2] == wanted]
    return f"did you mean '{elsewhere[0]}'?" if elsewhere else ending


def paths(node: Any, prefix: str = "") -> list[str]:
    """Returns the dotted names of all values of a configuration, also of those that refer to others."""
    found: list[str] = []
    for name in node if isinstance(node, DictConfig) and not OmegaConf.is_missing({"x": node}, "x") else ():
        path = f"{prefix}.{name}" if prefix else str(name)
        inner = None if OmegaConf.is_interpolation(node, name) or OmegaConf.is_missing(node, name) else node[name]
        found += paths(inner, path) if isinstance(inner, DictConfig) else [path]
    return found
