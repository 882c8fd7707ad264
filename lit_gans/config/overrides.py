"""Command-line arguments as overrides in Hydra's grammar, as pure functions."""

from __future__ import annotations

import os
import re
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

SWEEP_FLAGS = ("-m", "--multirun")
_KEY = re.compile(r"[+~]{0,2}([\w./@:-]+)")


def key_of(argument: str) -> str | None:
    """Returns the key of a `key=value` argument, without Hydra's prefixes, or None for other arguments."""
    key, equals, _ = argument.partition("=")
    match = _KEY.fullmatch(key)
    return match[1] if equals and match and not argument.startswith("-") else None


def quoted(arguments: list[str]) -> list[str]:
    """Quotes values that are existing paths, or that Hydra's grammar cannot read, so that they are passed unchanged.

    In a sweep, commas separate values, unless a file with the complete name exists.
    """
    sweeping = any(flag in arguments for flag in SWEEP_FLAGS)
    return [_quoted(argument, sweeping) for argument in arguments]


def value_of(argument: str) -> Any:
    """Returns the value of a `key=value` argument as Hydra reads it; that of a sweep as it is typed."""
    override = OverridesParser.create().parse_override(quoted([argument])[0])
    return argument.partition("=")[2] if override.is_sweep_override() else override.value()


def _quoted(argument: str, sweeping: bool) -> str:
    key, _, value = argument.partition("=")
    if key_of(argument) is None or re.fullmatch(r"[\w.+-]*", value):
        return argument
    if os.path.exists(value):  # False for text that is too long for a path
        return f"{key}={quote(value)}"
    try:
        OverridesParser.create().parse_override(argument)
        return argument
    except HydraException:
        return f"{key}={','.join(map(quote, value.split(',') if sweeping else [value]))}"


def quote(text: str) -> str:
    """Quotes text for Hydra's grammar, where a backslash escapes quotes, and itself before quotes."""
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\'" * bool(match[2]), text) + "'"


def with_search_path(overrides: list[str], *, first: str = "", last: str = "") -> list[str]:
    """Adds places to Hydra's search path, before and after those that the overrides give; empty ones are left out."""
    given = [item for item in overrides if item.startswith("hydra.searchpath=")]
    inside = given[-1].partition("=")[2].strip("[] ") if given else ""
    places = ",".join(filter(None, [first, inside, last]))
    return [*(item for item in overrides if item not in given), f"hydra.searchpath=[{places}]"]
