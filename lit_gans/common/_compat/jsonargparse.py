"""Private APIs of jsonargparse. Checked with jsonargparse 4.53.0."""

from __future__ import annotations

import inspect
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

    The deserializer of a registered type receives such an argument as a private `_common.NestedArg`. Returns None for
    all other values. No issue found.
    """
    return (value.key, value.val) if type(value).__name__ == "NestedArg" else None


def previous_value(kind: type) -> Any:
    """Returns the previous value of the argument that is being parsed, or else its default.

    jsonargparse converts a default that is a dataclass to a mapping with `class_path`. Returns None if neither value is
    an instance of `kind` or such a mapping. The deserializer of a registered type calls this function, because
    jsonargparse passes the previous value only to nested types. Without the previous value, `--optimizer.lr 0.1` would
    reset all other arguments of the optimizer. Reads the local variables `prev_val` and `self` of
    `_typehints.ActionTypeHint._check_type`. No issue found.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code is not ActionTypeHint._check_type.__code__:
        frame = frame.f_back
    candidates = () if frame is None else (frame.f_locals.get("prev_val"), frame.f_locals["self"].default)
    for value in candidates:
        if isinstance(value, kind) or (isinstance(value, dict) and "class_path" in value):
            return value
    return None
