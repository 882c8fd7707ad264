"""Schemas from signatures, and construction of objects from validated values.

jsonargparse reads the signatures, validates and constructs; errors name the key.
"""

from __future__ import annotations

import copy
import inspect
import pkgutil
from collections.abc import Callable, Set
from dataclasses import is_dataclass
from functools import cache
from typing import Any

from jsonargparse import ArgumentParser
from omegaconf import MISSING

from lit_gans.checkpoints.format import to_plain
from lit_gans.common._compat.jsonargparse import descriptions
from lit_gans.common.errors import RefusedInput, nearest, one_line
from lit_gans.config.mistakes import said
from lit_gans.config.registry import classes
from lit_gans.training.optim import Optimizer, optimizer_names
from lit_gans.training.schedules import Schedule

Target = type | Callable[..., Any]


def schema(target: Target | Optimizer) -> dict[str, Any]:
    """Returns the arguments of a class or function, or of an optimizer, with their defaults; `???` for none.

    Values whose class the user can choose become nodes with `_target_`.
    """
    return _to_target(target) if isinstance(target, Optimizer) else copy.deepcopy(_schema(target))


@cache
def _schema(target: Target) -> dict[str, Any]:
    defaults = _parser(target).get_defaults()
    values = defaults.it.as_dict() if "it" in defaults else {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.default is parameter.empty and name in values:
            values[name] = MISSING
    values = _to_target(values)
    return {"_target_": f"{target.__module__}.{target.__qualname__}", **values} if inspect.isclass(target) else values


def meanings(target: Target) -> dict[str, str]:
    """Returns the descriptions of the arguments of a class or function from its docstring and those of its bases."""
    return {name.removeprefix("it."): text for name, text in descriptions(_parser(target)).items()}


@cache
def _parser(target: Target, skip: frozenset[str] = frozenset()) -> ArgumentParser:
    """Returns the parser of the arguments of a class or function, which are below the key `it`."""
    parser = ArgumentParser(exit_on_error=False)
    if inspect.isclass(target):
        parser.add_class_arguments(target, "it", fail_untyped=False, skip={*skip}, instantiate=False)
    else:
        parser.add_function_arguments(target, "it", fail_untyped=False, skip={*skip})
    return parser


def _to_target(node: Any) -> Any:
    if is_dataclass(node) or isinstance(node, Optimizer):  # inside a tuple, which jsonargparse leaves as it is
        node = to_plain(node)
    if isinstance(node, dict) and "class_path" in node:
        return {"_target_": node["class_path"], **_to_target(node.get("init_args", {}))}
    if isinstance(node, dict):
        return {key: _to_target(value) for key, value in node.items()}
    return [_to_target(item) for item in node] if isinstance(node, list | tuple) else node


def to_class_path(node: Any, key: str = "") -> Any:
    """Converts `_target_` nodes to `class_path` / `init_args` as in jsonargparse and the Lightning CLI."""
    if isinstance(node, list):
        return [to_class_path(item, f"{key}[{index}]") for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if not is_node(node):
        return {name: to_class_path(value, f"{key}.{name}".lstrip(".")) for name, value in node.items()}
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    cls = target_class(node["_target_"], key)
    return {"class_path": node["_target_"], "init_args": to_class_path(without_remains(cls, arguments), key)}


def without_remains(cls: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Drops arguments of other optimizers or schedules: an option that replaces one is merged over the arguments of the
    previous one (Adam's betas under RMSprop). Those that none of them has stay, and are refused.
    """
    if cls is Optimizer and arguments.get("name") in optimizer_names():
        known = _of_optimizers()[arguments["name"]]
        others = set().union(*_of_optimizers().values())
    elif issubclass(cls, Schedule):
        known = _schema(cls).keys()
        others = {name for each in classes("lit_gans.training.schedules", Schedule).values() for name in _schema(each)}
    else:
        return arguments
    return {name: value for name, value in arguments.items() if name in known or name not in others}


@cache
def _of_optimizers() -> dict[str, Set[str]]:
    """Returns the names of the arguments of each optimizer."""
    return {name: schema(Optimizer(name)).keys() for name in optimizer_names()}


def construct(node: Any, key: str, base: type = object, **made: Any) -> Any:
    """Validates and constructs a node (a class by `_target_`, with arguments) and the nodes inside it.

    Args:
        node: plain containers.
        key: name of the node in error messages.
        base: class that the node's class must be derived from.
        **made: arguments that are passed as they are.

    Raises:
        RefusedInput: a class that cannot be imported or is not derived from `base`, an unknown argument, or an invalid
            value; says what the class or jsonargparse says of it.
    """
    if not is_node(node):
        raise RefusedInput(f"{key}={node!r} is not valid: expected {key}.NAME=VALUE, or null, which leaves it out.")
    cls = target_class(node["_target_"], key)
    if not issubclass(cls, base):
        raise RefusedInput(f"{key}: {node['_target_']} is not valid: expected a class derived from {base.__name__}.")
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    values = validated(cls, arguments, key, frozenset(made))
    try:
        return cls(**values, **made)
    except RefusedInput as error:
        raise RefusedInput(_with_key(key, str(error))) from error
    except Exception as error:  # whatever the constructor of a class raises for its arguments
        raise RefusedInput(f"{key}: {said(error)}") from error


def validated(
    target: Target, arguments: dict[str, Any], key: str = "", skip: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Validates plain arguments against a signature, and constructs the nodes inside them.

    Args:
        target: class or function.
        arguments: plain arguments.
        key: name of the object in error messages.
        skip: names of arguments that are not given.

    Raises:
        RefusedInput: an unknown argument, or an invalid value.
    """
    prefix = f"{key}." if key else ""
    names = [name for name in _schema(target) if name not in ("_target_", *skip)]
    for name in arguments:
        if name not in names:  # YAML may have a number as a name
            raise RefusedInput(f"{prefix}{name}: {target.__name__} has no such argument; {nearest(str(name), names)}")
    parser = _parser(target, skip)
    try:
        values = parser.parse_object({"it": to_class_path(arguments, key)}, defaults=False)
        return parser.instantiate(values).it.as_dict() if arguments else {}
    except RefusedInput as error:
        raise RefusedInput(_with_key(key, str(error))) from error
    except Exception as error:  # of jsonargparse, or of the constructor of a class inside
        if isinstance(error.__cause__, RefusedInput):  # of one type of a union; the message has all of them
            raise RefusedInput(_with_key(key, str(error.__cause__))) from error
        raise RefusedInput(one_line(str(error).replace('"it.', f'"{prefix}').replace("'it.", f"'{prefix}"))) from error


def target_class(path: Any, key: str) -> type:
    """Imports and returns a class by its path.

    Raises:
        RefusedInput: the path cannot be imported, or is not a class.
    """
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # importing a user's file may raise anything
        raise RefusedInput(f"{key}: {path} cannot be imported: {error or type(error).__name__}") from error
    if not inspect.isclass(found):
        raise RefusedInput(f"{key}: {path} is not a class.")
    return found


def is_node(value: Any) -> bool:
    """Returns whether a value names a class."""
    return isinstance(value, dict) and "_target_" in value


def _with_key(key: str, text: str) -> str:
    """Returns the sentence of a refusal with the key of the object that refuses, which may have named it already."""
    if key == "model" and text.startswith(("image_size=", "channels=")):  # which the configuration takes from the data
        return f"data.{text}"
    return text if not key or text.startswith(f"{key}.") else f"{key}: {text}"
