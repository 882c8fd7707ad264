"""Conversion of arguments to the types of their annotations, such as 0 to 0.0 where a float is annotated; other plain
values raise an error.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

from lit_gans.common.errors import RefusedInput

_LITERAL: Any = typing.Literal
_NUMBERS = {bool: "true or false", int: "a whole number", float: "a number"}


@runtime_checkable
class FromPlain(Protocol):
    """A class whose values text or a mapping describes."""

    @classmethod
    def from_plain(cls, plain: str | dict[str, Any]) -> Any:
        """Returns the value that text or a mapping describes."""


def converts_numbers(constructor: Callable[..., None]) -> Callable[..., None]:
    """Returns a constructor whose arguments are first converted; see `converted`. The arguments of base classes are
    converted with them, so that every constructor receives the same values.
    """

    @functools.wraps(constructor)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        constructors = [vars(cls)["__init__"] for cls in reversed(type(self).__mro__) if "__init__" in vars(cls)]
        annotations = {name: each for init in constructors for name, each in _annotations(inspect.unwrap(init)).items()}
        defaults = {name: each for init in constructors for name, each in inspect.signature(init).parameters.items()}

        def own(name: str, value: Any) -> Any:
            if name in defaults and value is defaults[name].default:  # whatever its annotation
                return value
            return converted(value, annotations.get(name), name)

        names = [*inspect.signature(constructor).parameters][1 : 1 + len(args)]
        given = [own(name, value) for name, value in zip(names, args, strict=False)]
        constructor(self, *given, *args[len(given) :], **{name: own(name, value) for name, value in kwargs.items()})

    return wrapper


def convert_fields(instance: Any) -> None:
    """Converts the fields of a frozen dataclass, see `converted`; for its `__post_init__`."""
    defaults = {field.name: field.default for field in fields(instance)}
    for cls in reversed(type(instance).__mro__):
        annotations = _annotations(cls)
        for name in annotations.keys() & defaults.keys():
            value = getattr(instance, name)
            if value is not defaults[name]:
                object.__setattr__(instance, name, converted(value, annotations[name], name))


def converted(value: Any, annotation: Any, name: str) -> Any:
    """Returns an argument of its annotated type: numbers are converted, including those in lists, tuples and mappings.

    Whole numbers become floats, lists become tuples, and scalars of NumPy and torch become numbers of Python. Text
    becomes a number, since YAML 1.1 reads `1e-4` as text. Text and mappings become a `FromPlain`, if one is annotated.
    Objects of other types stay as they are.

    Args:
        value: the argument.
        annotation: its type.
        name: its name, for the error message.

    Raises:
        RefusedInput: a plain value (None, a number, text, a list or a mapping) is of no annotated type.
    """
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if union else (annotation,)
    if any(_has_type(value, kind) for kind in kinds):
        return value
    plain = value.tolist() if hasattr(value, "tolist") else value  # of NumPy and torch
    for kind in kinds:
        origin, members = typing.get_origin(kind), typing.get_args(kind)
        if not isinstance(origin, type) or not members:
            continue
        if issubclass(origin, Mapping) and isinstance(plain, dict):
            return {key: converted(item, members[1], f"{name}.{key}") for key, item in plain.items()}
        if issubclass(origin, Sequence) and isinstance(plain, list | tuple):
            each = members if len(members) == len(plain) and ... not in members else members[:1] * len(plain)
            items = [converted(item, own, name) for item, own in zip(plain, each, strict=True)]
            return tuple(items) if isinstance(plain, tuple) or issubclass(origin, tuple) else items
    for kind in kinds:
        if kind in _NUMBERS and isinstance(plain, str | bool | int | float):
            with suppress(RefusedInput) if _LITERAL in map(typing.get_origin, kinds) else nullcontext():
                return _number(plain, kind, name)
        if isinstance(kind, type) and issubclass(kind, FromPlain) and isinstance(plain, str | dict):
            return kind.from_plain(plain)
    expected = [_in_words(kind) for kind in kinds]
    if None not in expected and (value is None or isinstance(value, str | bool | int | float | list | tuple | dict)):
        raise RefusedInput(f"{name}={value!r} is not valid: expected {' or '.join(map(str, expected))}.")
    return value


def _in_words(kind: Any) -> str | None:
    """Returns a type in words; None for a type that plain values are not compared with."""
    origin = typing.get_origin(kind)
    if origin is _LITERAL:
        return ", ".join(map(repr, typing.get_args(kind)))
    if isinstance(origin, type):
        return "a mapping" if issubclass(origin, Mapping) else "a list" if issubclass(origin, Sequence) else None
    if isinstance(kind, type) and kind.__module__.startswith("lit_gans."):
        return kind.__name__
    return {**_NUMBERS, str: "text", types.NoneType: "None"}.get(kind)


def _has_type(value: Any, kind: Any) -> bool:
    """Returns whether a value has a type that is neither a container nor converted to."""
    if typing.get_origin(kind) is _LITERAL:
        return value in typing.get_args(kind)
    if kind in _NUMBERS:
        return type(value) is kind
    try:
        return isinstance(kind, type) and isinstance(value, kind)
    except TypeError:  # of `Any`, and of a protocol that is not checked at runtime
        return True


def _number(value: str | bool | int | float, kind: type, name: str) -> Any:
    number: Any = value
    if isinstance(value, str) and kind is not bool:
        try:
            number = float(value) if kind is float else int(value)
        except ValueError:
            number = value
    if kind is float and isinstance(number, int) and not isinstance(number, bool):
        number = float(number)
    if type(number) is not kind:
        raise RefusedInput(f"{name}={value!r} must be {_NUMBERS[kind]}.")
    return number


def _annotations(function_or_class: Any) -> dict[str, Any]:
    """Returns the annotated types by name, without types that cannot be resolved at runtime."""
    module = sys.modules.get(str(getattr(function_or_class, "__module__", None)), builtins)
    found = {}
    for name, annotation in inspect.get_annotations(function_or_class).items():
        try:
            found[name] = eval(annotation, vars(module)) if isinstance(annotation, str) else annotation
        except Exception:  # a name that only type checkers import, or that a function defines
            continue
    return found
