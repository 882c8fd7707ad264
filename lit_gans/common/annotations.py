"""Converts arguments to their annotated types, such as 0 to 0.0 for an argument that is annotated as float.

Plain values that cannot be converted raise an error.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable
from weakref import WeakSet

from lit_gans.common.errors import RefusedInput

_LITERAL: Any = typing.Literal
_converting: WeakSet[Callable[..., None]] = WeakSet()  # constructors with the decorator `converts_arguments`
_running: ContextVar[tuple[inspect.BoundArguments, ...]] = ContextVar("running", default=())
NUMBERS = {bool: "true or false", int: "a whole number", float: "a number"}


@runtime_checkable
class FromPlain(Protocol):
    """Protocol of classes whose instances can be created from a string or a mapping."""

    @classmethod
    def from_plain(cls, plain: str | dict[str, Any]) -> Any:
        """Creates an instance from a string or a mapping."""


def converts_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """Decorator for constructors that converts the arguments to their annotated types; see `converted`.

    Arguments that are passed on to base classes are converted as well, so that all constructors receive the same
    values. While a constructor runs, `running_constructors` returns its arguments.
    """

    if constructor in _converting:
        return constructor

    @functools.wraps(constructor)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        constructors = [vars(cls)["__init__"] for cls in reversed(type(self).__mro__) if "__init__" in vars(cls)]
        annotations = {name: kind for init in constructors for name, kind in _annotations(inspect.unwrap(init)).items()}
        parameters = {name: item for init in constructors for name, item in inspect.signature(init).parameters.items()}

        def convert(name: str, value: Any) -> Any:
            if name in parameters and value is parameters[name].default:  # defaults are valid for any annotation
                return value
            return converted(value, annotations.get(name), name)

        names = [*inspect.signature(constructor).parameters][1 : 1 + len(args)]
        positional = [convert(name, value) for name, value in zip(names, args, strict=False)]
        keywords = {name: convert(name, value) for name, value in kwargs.items()}
        positional += args[len(positional) :]
        previous = _running.set((*_running.get(), *_bound(constructor, self, *positional, **keywords)))
        try:
            constructor(self, *positional, **keywords)
        finally:
            _running.reset(previous)

    _converting.add(wrapper)
    return wrapper


def _bound(constructor: Callable[..., None], *args: Any, **kwargs: Any) -> Iterator[inspect.BoundArguments]:
    """Yields the arguments by name, or nothing if they are wrong, so that the constructor raises Python's own error."""
    for follow_wrapped in (True, False):  # a decorator of the user can take other arguments
        with suppress(TypeError):
            yield inspect.signature(constructor, follow_wrapped=follow_wrapped).bind(*args, **kwargs)
            return


def running_constructors(instance: object) -> list[inspect.BoundArguments]:
    """Returns the arguments of the running constructors of an instance, from the subclass to the base class.

    Contains only constructors with the decorator `converts_arguments`. The first argument is the instance.
    """
    return [bound for bound in _running.get() if next(iter(bound.arguments.values())) is instance]


def convert_fields(instance: Any) -> None:
    """Converts the fields of a frozen dataclass to their annotated types. Called by the dataclass's `__post_init__`."""
    types_by_name = field_types(type(instance))
    for field in fields(instance):
        value = getattr(instance, field.name)
        if value is not field.default:
            object.__setattr__(instance, field.name, converted(value, types_by_name.get(field.name), field.name))


def field_types(cls: type) -> dict[str, Any]:
    """Returns the annotated types of a dataclass's fields by name, including inherited fields."""
    return {name: kind for base in reversed(cls.__mro__) for name, kind in _annotations(base).items()}


def converted(value: Any, annotation: Any, name: str) -> Any:
    """Converts an argument to its annotated type. Items of lists, tuples and mappings are converted as well.

    Depending on the annotation, integers become floats, lists become tuples, and NumPy and torch scalars become Python
    numbers. Strings become numbers, because YAML 1.1 reads `1e-4` as a string. If the annotation is a `FromPlain`
    class, strings and mappings become instances of that class. Objects of all other types stay unchanged.

    Args:
        value: value of the argument.
        annotation: annotated type of the argument.
        name: name of the argument, for the error message.

    Raises:
        RefusedInput: a plain value (None, a number, a string, a list or a mapping) matches no annotated type.
    """
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if union else (annotation,)
    if any(_has_type(value, kind) for kind in kinds):
        return value
    plain = value.tolist() if hasattr(value, "tolist") else value  # for NumPy and torch
    for kind in kinds:
        origin, members = typing.get_origin(kind), typing.get_args(kind)
        if not isinstance(origin, type) or not members:
            continue
        if issubclass(origin, Mapping) and isinstance(plain, dict):
            return {key: converted(item, members[1], f"{name}.{key}") for key, item in plain.items()}
        if issubclass(origin, Sequence) and isinstance(plain, list | tuple):
            item_types = members if len(members) == len(plain) and ... not in members else members[:1] * len(plain)
            items = [converted(item, item_type, name) for item, item_type in zip(plain, item_types, strict=True)]
            return tuple(items) if isinstance(plain, tuple) or issubclass(origin, tuple) else items
    for kind in kinds:
        if kind in NUMBERS and isinstance(plain, str | bool | int | float):
            with suppress(RefusedInput) if _LITERAL in map(typing.get_origin, kinds) else nullcontext():
                return _number(plain, kind, name)
        if isinstance(kind, type) and issubclass(kind, FromPlain) and isinstance(plain, str | dict):
            return kind.from_plain(plain)
    expected = [_in_words(kind) for kind in kinds]
    if None not in expected and (value is None or isinstance(value, str | bool | int | float | list | tuple | dict)):
        raise RefusedInput(f"{name}={value!r} is not valid: expected {' or '.join(map(str, expected))}.")
    return value


def _in_words(kind: Any) -> str | None:
    """Describes a type in words, for an error message. Returns None for a type that is not checked."""
    origin = typing.get_origin(kind)
    if origin is _LITERAL:
        return ", ".join(map(repr, typing.get_args(kind)))
    if isinstance(origin, type):
        return "a mapping" if issubclass(origin, Mapping) else "a list" if issubclass(origin, Sequence) else None
    if isinstance(kind, type) and kind.__module__.startswith("lit_gans."):
        return kind.__name__
    return {**NUMBERS, str: "text", types.NoneType: "None"}.get(kind)


def _has_type(value: Any, kind: Any) -> bool:
    """Returns whether a value already has a type, so that it needs no conversion. Container types are not checked."""
    if typing.get_origin(kind) is _LITERAL:
        return value in typing.get_args(kind)
    if kind in NUMBERS:
        return type(value) is kind
    try:
        return isinstance(kind, type) and isinstance(value, kind)
    except TypeError:  # `Any`, and protocols that are not checked at runtime
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
        raise RefusedInput(f"{name}={value!r} must be {NUMBERS[kind]}.")
    return number


def _annotations(function_or_class: Any) -> dict[str, Any]:
    """Returns the annotated types by name. Types that cannot be resolved at runtime are left out."""
    module = sys.modules.get(str(getattr(function_or_class, "__module__", None)), builtins)
    annotations = {}
    for name, annotation in inspect.get_annotations(function_or_class).items():
        try:
            annotations[name] = eval(annotation, vars(module)) if isinstance(annotation, str) else annotation
        except Exception:  # the name is imported for type checkers only, or defined in a function
            continue
    return annotations
