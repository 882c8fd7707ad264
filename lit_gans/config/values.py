"""Sentences about values that do not fit a signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from lit_gans.common.errors import RefusedInput, one_line, refuse_above_64_bits

_GROUPS = {"Optimizer": "optimizer", "Schedule": "schedule", "FeatureScore": "score"}  # classes with a group of options
_OF_DATA = ("image_size=", "channels=")  # arguments of a model that the configuration takes from the data
_NODE = "a class with its arguments, {_target_: CLASS, NAME: VALUE}"


def sentence(prefix: str, values: dict[str, Any], report: str) -> str:
    """Converts jsonargparse's report of an invalid value to a sentence that names its key and what would be valid.

    Args:
        prefix: key of the object, with a dot at its end, or nothing.
        values: the values that were given, by name.
        report: text of jsonargparse's error.
    """
    found = re.search(r'key "it\.([^"]+)"', report)
    if found is None:
        return f"{prefix}{one_line(report)}"
    key, value = f"{prefix}{found[1]}", values.get(found[1].partition(".")[0])
    base = re.search(r"Not a valid subclass of (\w+)", report)
    expected = expected_values(report)
    if base and not expected:
        expected = _an_object(key, base[1])
    if not expected:
        return f"{prefix}{one_line(report)}"
    return f"{key}={value!r} is not valid: expected {expected}."


def with_key(key: str, text: str) -> str:
    """Returns the sentence of a refusal with the key of the object that refuses."""
    if key == "model" and text.startswith(_OF_DATA):
        return f"data.{text}"
    return text if not key or text.startswith(f"{key}.") else f"{key}: {text}"  # the class has named its own key


def expected_values(report: str) -> str:
    """Returns the types that a report of jsonargparse expects, in words; nothing if it names none."""
    texts = re.findall(r"Expected an? (.*?)(?:\. Got value.*)?\s*$", report, flags=re.M)
    words = [_readable(text) for text in texts]
    if words and "Not a valid subclass of" in report:
        words.append(_NODE)
    return " or ".join(dict.fromkeys(words))


def _an_object(key: str, base: str) -> str:
    setting = f"{key}.NAME=VALUE, which sets one of its arguments"
    group = _GROUPS.get(base)
    return f"{group}@{key}=NAME, which chooses one, or {setting}" if group else setting


def _readable(text: str) -> str:
    text = re.sub(r"<class '([\w.]+)'>", r"\1", text).replace("typing.", "").replace("NoneType", "null")
    if text.startswith("dot import path string"):  # of a value that is text, where a class is expected
        return _NODE
    literal = re.fullmatch(r"Literal\[(.*)\]", text)
    if literal:
        return f"one of {literal[1].replace(chr(39), '')}"
    sized = re.fullmatch(r"tuple with (\d+) elements?", text)
    if sized:
        return f"a list of {sized[1]} values, [{','.join('ABCDEFGH'[: int(sized[1])])}]"
    return {"tuple": "a list, [A,B]", "list": "a list, [A,B]", "dict": "a mapping, {KEY:VALUE}"}.get(text, text)


def type_name(hint: Any) -> str:
    """Returns the type of an argument in words."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join("null" if member is NoneType else type_name(member) for member in get_args(hint))
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


def refuse_inexact(target: Any, hints: Mapping[str, Any], values: Mapping[str, Any], prefix: str) -> None:
    """Raises `RefusedInput` for values that jsonargparse takes for others: a null where the type of the argument
    excludes it, and a number that equals one of a Literal but has another type, such as 2.0 or true for 2 or 1.

    Args:
        target: class or function.
        hints: types of its arguments.
        values: values by name.
        prefix: key of the object, with a dot at its end, or nothing.
    """
    defaults = inspect.signature(target).parameters
    for name, value in values.items():
        refuse_above_64_bits(**{f"{prefix}{name}": value})
        hint = hints.get(name, Any)
        members = {*get_args(hint)} if get_origin(hint) in (Union, UnionType) else {hint}
        default = defaults[name].default if name in defaults else inspect.Parameter.empty
        excluded = value is None and default is not None and not members & {Any, object, None, NoneType}
        literals = [item for member in members if get_origin(member) is Literal for item in get_args(member)]
        if excluded or (value in literals and type(value) not in {*map(type, literals), *members}):
            given = "null" if value is None else value
            raise RefusedInput(f"{prefix}{name}={given} is not valid: expected {type_name(hint)}.")


def missing_arguments(target: Any, given: set[str]) -> list[str]:
    """Returns the names of required arguments of a class or function that are not given."""
    return [
        name
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in given
    ]
