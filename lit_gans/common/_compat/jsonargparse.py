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

    Returns None if neither is an instance of `kind`. The deserializer of a registered type calls this function.
    jsonargparse passes the previous value to nested types only. Without it, `--optimizer.lr 0.1` would reset all other
    arguments of the optimizer. Reads the local variables `prev_val` and `self` of
    `_typehints.ActionTypeHint._check_type`. No issue found.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code is not ActionTypeHint._check_type.__code__:
        frame = frame.f_back
    candidates = () if frame is None else (frame.f_locals.get("prev_val"), frame.f_locals["self"].default)
    return next((value for value in candidates if isinstance(value, kind)), None)


@contextmanager
def other_class_other_arguments() -> Iterator[None]:
    """Context manager in which a class that replaces another class as an argument starts with its own defaults.

    Replaces `_typehints.discard_init_args_on_class_path_change`, which keeps arguments of the same name. For example,
    a `LinearSchedule` would silently begin at the `start` of the `CosineSchedule` that it replaces. Reported in
    https://github.com/mauvilsa/jsonargparse/issues/460.
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
