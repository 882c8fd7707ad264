"""Private APIs of jsonargparse. Checked with jsonargparse 4.53.0."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jsonargparse import ArgumentParser
from jsonargparse._typehints import ActionTypeHint


def descriptions(parser: ArgumentParser) -> dict[str, str]:
    """Returns the descriptions of a parser's arguments, in one line each, by name.

    Reads `argparse.ArgumentParser._actions`: the public `format_help` has them only in a text for people. No issue
    found.
    """
    return {action.dest: " ".join((action.help or "").split()) for action in parser._actions}


def nested_argument(value: Any) -> tuple[str, Any] | None:
    """Returns the key and the text of an argument inside a registered type, such as `lr` of `--optimizer.lr 0.1`; None
    for another value.

    jsonargparse passes a `_common.NestedArg` to the deserializer of a registered type. No issue found.
    """
    return (value.key, value.val) if type(value).__name__ == "NestedArg" else None


def previous_value(kind: type) -> Any:
    """Returns the value of a type that the argument had before, or its default, for the deserializer of a registered
    type; None for none.

    Reads `prev_val` and `self.default` in `_typehints.ActionTypeHint._check_type`, which passes the previous value to
    nested types only: without it, `--optimizer.lr 0.1` would reset all other arguments of the optimizer. No issue
    found.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code is not ActionTypeHint._check_type.__code__:
        frame = frame.f_back
    found = () if frame is None else (frame.f_locals.get("prev_val"), frame.f_locals["self"].default)
    return next((value for value in found if isinstance(value, kind)), None)


@contextmanager
def other_class_other_arguments() -> Iterator[None]:
    """Makes a class that replaces another one start with its own defaults.

    Replaces `_typehints.discard_init_args_on_class_path_change`, which passes on arguments of the same name: RMSprop
    would silently train with Adam's learning rate. Reported in https://github.com/mauvilsa/jsonargparse/issues/460.
    """
    from jsonargparse import Namespace, _typehints

    def discard(parser: Any, previous: Any, value: Any) -> None:
        if previous and "init_args" in previous and previous["class_path"] != value["class_path"]:
            previous["init_args"] = Namespace()

    kept = _typehints.discard_init_args_on_class_path_change
    _typehints.discard_init_args_on_class_path_change = discard
    try:
        yield
    finally:
        _typehints.discard_init_args_on_class_path_change = kept
