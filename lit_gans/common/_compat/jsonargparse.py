"""Private APIs of jsonargparse. Checked with jsonargparse 4.53.0."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

import yaml
from jsonargparse import ArgumentParser
from jsonargparse._typehints import ActionTypeHint
from jsonargparse.typing import register_type

from lit_gans.common.errors import RefusedInput, refusing


def descriptions(parser: ArgumentParser) -> dict[str, str]:
    """Returns the description of each argument of a parser as a single line, by name.

    Reads `argparse.ArgumentParser._actions`, because the public `format_help` returns only the formatted help text.
    No issue found.
    """
    return {action.dest: " ".join((action.help or "").split()) for action in parser._actions}


def nested_argument(value: Any) -> tuple[str, Any] | None:
    """Returns the key and the text of a nested argument of a registered type, such as `lr` in `--optimizer.lr 0.1`.

    Returns None for all other values. jsonargparse passes nested arguments to the deserializer of a registered type as
    a private `_common.NestedArg`. No issue found.
    """
    return (value.key, value.val) if type(value).__name__ == "NestedArg" else None


def previous_value(kind: type) -> Any:
    """Returns the previous value of the argument that is being parsed, or else its default.

    jsonargparse converts a default that is a dataclass to a mapping with `class_path`. Returns None if neither value is
    an instance of `kind` or such a mapping. The deserializer of a registered type calls this function.
    jsonargparse passes the previous value to nested types only. Without it, `--optimizer.lr 0.1` would reset all other
    arguments of the optimizer. Reads the local variables `prev_val` and `self` of
    `_typehints.ActionTypeHint._check_type`. No issue found.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code is not ActionTypeHint._check_type.__code__:
        frame = frame.f_back
    candidates = () if frame is None else (frame.f_locals.get("prev_val"), frame.f_locals["self"].default)
    return next((value for value in candidates if isinstance(value, kind) or _has_class_path(value)), None)


def _has_class_path(value: Any) -> bool:
    return isinstance(value, dict) and "class_path" in value


def register_value(kind: Any, serialize: Callable[[Any], Any]) -> None:
    """Registers a class of values, so that every parser, such as a user's `LightningCLI`, reads them in the same way.

    Args:
        kind: the class. Its class method `from_plain` returns the value that a name or a mapping describes. Its class
            method `changed` returns a value that differs from a previous value in some arguments. The previous value
            is None if there is none.
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
    """Imports the modules of all classes that a description of a user contains.

    `from_plain` imports nothing, because it also reads the descriptions in checkpoints.
    """
    if isinstance(plain, dict | list):
        for value in plain.values() if isinstance(plain, dict) else plain:
            _import_classes(value)
    elif isinstance(plain, str) and "." in plain and all(part.isidentifier() for part in plain.split(".")):
        with refusing(f"{plain} cannot be imported"):
            importlib.import_module(plain.rpartition(".")[0])
