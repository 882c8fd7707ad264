"""Pure functions that convert command-line arguments to overrides in Hydra's grammar."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

SWEEP_FLAGS = ("-m", "--multirun")
# last names of keys whose values are paths, even if they look like numbers
_PATHS = (
    "dir",
    "default_root_dir",
    "output",
    "checkpoint",
    "run",
    "root",
    "fake",
    "real",
    "input",
    "init_from",
    "resume",
)
_KEY = re.compile(r"[+~]{0,2}([\w./@:-]+)")


def key_of(argument: str) -> str | None:
    """Returns the key of a `key=value` argument without Hydra's prefixes, or None if the argument has another form."""
    key, equals, _ = argument.partition("=")
    match = _KEY.fullmatch(key)
    return match[1] if equals and match and not argument.startswith("-") else None


def quoted(arguments: list[str]) -> list[str]:
    """Quotes values that are existing paths or that Hydra cannot parse, so that Hydra passes them on unchanged.

    In a sweep, commas separate values. If a file with the complete text as its name exists, the text is one value.
    """
    is_sweep = any(flag in arguments for flag in SWEEP_FLAGS)
    return [_quoted(argument, is_sweep) for argument in arguments]


def replacing_nodes(arguments: list[str]) -> list[str]:
    """Adds overrides with which a value with a `_target_` replaces the node of its key.

    Hydra merges mappings, so a class that is typed with some of its arguments would keep the others of the experiment.
    `key=null` before `key={_target_: CLASS, ...}` removes the previous node.

    Args:
        arguments: quoted arguments, see `quoted`.
    """
    return [item for argument in arguments for item in (*_removals(argument), argument)]


def is_removal(override: str) -> bool:
    """Returns whether `replacing_nodes` has added an override of a nested key."""
    return override.startswith("++") and override.endswith("=null")


def _removals(argument: str) -> Iterator[str]:
    key = key_of(argument)
    if key is None or "_target_" not in argument.partition("=")[2]:
        return
    override = OverridesParser.create().parse_override(argument)
    value: Any = override.value()
    values = value.list if override.is_choice_sweep() else [value]
    names = dict.fromkeys(name for value in values for name in _nodes(value, key))
    for name in names:
        # `++` accepts a nested key that the previous node lacks; without it, Hydra refuses an unknown key
        yield f"{'' if name == key and not argument.startswith('+') else '++'}{name}=null"


def _nodes(value: Any, key: str) -> Iterator[str]:
    """Yields the keys of the outermost mappings with a `_target_` in a value. Hydra replaces lists itself."""
    if not isinstance(value, dict):
        return
    if "_target_" in value:
        yield key
        return
    for name, item in value.items():
        yield from _nodes(item, f"{key}.{name}")


def value_of(argument: str) -> Any:
    """Returns the value of a `key=value` argument as Hydra parses it. Returns the typed text for several values."""
    override = OverridesParser.create().parse_override(quoted([argument])[0])
    return argument.partition("=")[2] if override.is_sweep_override() else override.value()


def _quoted(argument: str, is_sweep: bool) -> str:
    key, _, value = argument.partition("=")
    if key_of(argument) is None:
        return argument
    if re.fullmatch(r"[\w.+-]*", value):
        is_path = re.split(r"[.@]", key)[-1] in _PATHS or ("_" in value and os.path.exists(value))
        # Hydra would read 2024_07 as 202407, and 1e5 as 100000.0
        return f"{key}={quote(value)}" if is_path and value[:1].isdigit() else argument
    if os.path.exists(value):  # also False if the text is too long for a path
        return f"{key}={quote(value)}"
    try:
        OverridesParser.create().parse_override(argument)
        return argument
    except HydraException:
        return f"{key}={','.join(map(quote, value.split(',') if is_sweep else [value]))}"


def quote(text: str) -> str:
    """Quotes text for Hydra's grammar, in which a backslash escapes a quote, and also a backslash before a quote."""
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\'" * bool(match[2]), text) + "'"


def with_search_path(overrides: list[str], *, first: str = "", last: str = "") -> list[str]:
    """Adds entries to Hydra's search path.

    Args:
        overrides: overrides, which may set the search path.
        first: entry before the existing entries; an empty string adds no entry.
        last: entry after the existing entries; an empty string adds no entry.
    """
    existing = [item for item in overrides if item.startswith("hydra.searchpath=")]
    entries = existing[-1].partition("=")[2].strip("[] ") if existing else ""
    search_path = ",".join(filter(None, [first, entries, last]))
    return [*(item for item in overrides if item not in existing), f"hydra.searchpath=[{search_path}]"]
