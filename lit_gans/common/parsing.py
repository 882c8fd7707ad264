"""Registration of classes with jsonargparse, which parses command lines and configurations."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import yaml
from jsonargparse.typing import register_type

from lit_gans.common._compat.jsonargparse import nested_argument, previous_value
from lit_gans.common.errors import RefusedInput, refusing


def register_value(kind: Any, serialize: Callable[[Any], Any]) -> None:
    """Registers a class of values, so that every parser, such as a user's `LightningCLI`, reads them in the same way.

    Args:
        kind: the class. Its class method `from_plain` returns the value that a name or a mapping describes. Its class
            method `changed` returns a value that differs from a previous value in some arguments. The method receives
            None if there is no previous value.
        serialize: function that converts a value to plain containers.
    """

    def deserialize(plain: Any) -> Any:
        nested, previous = nested_argument(plain), previous_value(kind)
        try:
            if isinstance(previous, dict):
                previous = kind.from_plain(previous)
            if nested is not None:
                plain = _as_mapping(*nested)
            if not isinstance(plain, str | dict):
                raise RefusedInput(f"{plain!r}: expected a name, or a mapping of arguments")
            _import_classes(plain)
            is_whole = isinstance(plain, str) or "class_path" in plain or ("name" in plain and nested is None)
            return kind.from_plain(plain) if is_whole else kind.changed(previous, plain)
        except RefusedInput as error:
            raise ValueError(str(error)) from error  # jsonargparse adds the key to the message

    register_type(kind, serialize, deserialize, type_check=isinstance)


def _as_mapping(name: str, text: Any) -> dict[str, Any]:
    """Returns a nested argument as a mapping, for example `{"schedule": {"end": 0.5}}` for `schedule.end` and `0.5`."""
    with refusing(f"{name}={text} is not valid"):
        value = yaml.safe_load(text) if isinstance(text, str) else text
    if value == "None":  # in arguments of a class that is itself an argument, jsonargparse converts null to this text
        value = None
    for key in reversed(name.removeprefix("dict_kwargs.").split(".")):
        value = {key: value}
    return value


def _import_classes(plain: Any) -> None:
    """Imports the modules of all classes that are named in a user's plain value.

    `from_plain` imports nothing, because it also reads plain values from checkpoints.
    """
    if isinstance(plain, dict | list):
        for value in plain.values() if isinstance(plain, dict) else plain:
            _import_classes(value)
    elif isinstance(plain, str) and "." in plain and all(part.isidentifier() for part in plain.split(".")):
        with refusing(f"{plain} cannot be imported"):
            importlib.import_module(plain.rpartition(".")[0])
