"""Conversion of Hydra's and OmegaConf's errors to single sentences that suggest the nearest valid name."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lit_gans.common.errors import RefusedInput, nearest, one_line
from lit_gans.config.hints import did_you_mean
from lit_gans.config.registry import IMPORT_VARIABLE

DONE, FAILED, REFUSED = 0, 1, 2
GROUPS: tuple[str, ...] = (
    "experiment",
    "model",
    "data",
    "metrics",
    "trainer",
    "strategy",
    "precision",
    "callbacks",
    "logger",
)
GROUPS += ("optimizer", "schedule", "score")
_OWN = ("model", "data", "optimizer", "schedule", "score")  # groups whose options are classes
DEBUG_VARIABLE = "LIT_GANS_DEBUG"


def refused_is_2(command: Callable[[], int]) -> int:
    """Returns the exit code of `command`; for `RefusedInput`, prints its message to stderr and returns 2.

    With `LIT_GANS_DEBUG=1` in the environment, the traceback comes first.
    """
    try:
        return command()
    except RefusedInput as error:
        print_refusal(error)
        return REFUSED


def print_refusal(error: Exception) -> None:
    """Prints an error as one sentence to stderr, with `LIT_GANS_DEBUG=1` after its traceback."""
    if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        traceback.print_exception(error)
    print(f"lit-gans: {error}", file=sys.stderr)


@contextmanager
def refusals(composed: Callable[[], Any]) -> Iterator[None]:
    """Converts Hydra's and OmegaConf's errors to one sentence that suggests the nearest valid name.

    Args:
        composed: returns the configuration of the chosen groups without overridden values, which determines the keys.
    """
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise RefusedInput(_sentence(error, composed)) from error
    except YAMLError as error:  # names the file and the line; tags of Python objects are errors, and run no code
        raise RefusedInput(f"a configuration file is not plain YAML: {one_line(error)}.") from error


def _sentence(error: Exception, composed: Callable[[], Any]) -> str:
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        unnamed = group in _OWN and not os.environ.get(IMPORT_VARIABLE)
        own = f" One of your own is found by {IMPORT_VARIABLE}=MODULE." if unnamed else ""
        return f"{group}={option}: there is no such {group}; {nearest(option, error.options)}{own}"
    if isinstance(error, OverrideParseException):
        several = "; give each override by itself" if re.search(r"=.*\s[\w.@]+=", str(error.override)) else ""
        return f"'{error.override}' cannot be read as key=value: {text.splitlines()[0]}{several}."
    ambiguous = re.match(r"Ambiguous value for argument '(\w[^=]*)=([^']*)'", text)
    if ambiguous:
        return f"{ambiguous[1]}={ambiguous[2]} has several values: -m trains with each of them, [A,B] is one list."
    unknown = re.search(r"config group '([^']+)' does not exist", text)
    if unknown:
        return f"{unknown[1]}: there is no such group; {nearest(unknown[1], GROUPS)}"
    deleted = re.search(r"Could not delete from config\. '([^']+)' does not exist", text)
    if deleted:
        return f"~{deleted[1]}: there is no such key; {did_you_mean(deleted[1], composed())}"
    override = re.search(r"Could not override '([^']+)'", text)
    around = override[1].partition("@")[2].partition(".")[0] if override else ""
    if override and around and not composed().get(around):
        return f"{override[1]}: nothing is chosen there; choose {around}=NAME too, or add it: +{override[1]}=NAME."
    node = OmegaConf.select(composed(), override[1]) if override else None
    if override and isinstance(node, DictConfig):  # a mapping that is no group
        keys = " or ".join(f"{override[1]}.{name}" for name in map(str, node))
        return f"{override[1]}: nothing can be chosen there; set {keys}."
    if override:
        return f"{override[1]}: there is no such key; {did_you_mean(override[1], composed())}"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    key = cause.full_key if isinstance(cause, OmegaConfBaseException) else None
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{key}: {lines[0]}" if key and key not in lines[0] else lines[0]
