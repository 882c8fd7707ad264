"""Derives schemas from signatures, and constructs objects from validated values.

jsonargparse reads the signatures, validates the values and constructs the objects. Error messages contain the key.

Hydra's nodes have the class as `_target_` beside the arguments, so that `model.n_critic=2` sets an argument. The nodes
of jsonargparse and of the Lightning CLI have the class as `class_path`, and the arguments in `init_args`. Only this
module converts one format to the other.
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
from lightning.pytorch.strategies import Strategy
from omegaconf import MISSING

from lit_gans.checkpoints.format import to_plain
from lit_gans.common._compat.jsonargparse import descriptions
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.mistakes import error_message
from lit_gans.config.registry import classes
from lit_gans.config.wrong_values import sentence_of
from lit_gans.training.optim import OptimizerConfig, optimizer_names
from lit_gans.training.schedules import Schedule

Target = type | Callable[..., Any]


def schema(target: Target | OptimizerConfig) -> dict[str, Any]:
    """Returns the arguments of a class, function or optimizer with their defaults. Required arguments are `???`.

    A default whose class the user can choose is converted to a node with `_target_`.
    """
    return _to_target(target) if isinstance(target, OptimizerConfig) else copy.deepcopy(_schema(target))


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
    """Returns the descriptions of the arguments, from the docstrings of a class and its bases, or of a function."""
    return {name.removeprefix("it."): text for name, text in descriptions(_parser(target)).items()}


@cache
def _parser(target: Target, skip: frozenset[str] = frozenset()) -> ArgumentParser:
    """Returns the parser for the arguments of a class or function. The arguments are nested under the key `it`."""
    parser = ArgumentParser(exit_on_error=False)
    if inspect.isclass(target):
        parser.add_class_arguments(target, "it", fail_untyped=False, skip={*skip}, instantiate=False)
    else:
        parser.add_function_arguments(target, "it", fail_untyped=False, skip={*skip})
    return parser


def _to_target(node: Any) -> Any:
    if is_dataclass(node) or isinstance(node, OptimizerConfig):  # jsonargparse does not convert items of a tuple
        node = to_plain(node)
    if isinstance(node, dict) and "class_path" in node:
        return {"_target_": node["class_path"], **_to_target(node.get("init_args", {}))}
    if isinstance(node, dict):
        return {key: _to_target(value) for key, value in node.items()}
    return [_to_target(item) for item in node] if isinstance(node, list | tuple) else node


def to_class_path(node: Any, key: str = "") -> Any:
    """Converts `_target_` nodes to the `class_path` and `init_args` nodes of jsonargparse and the Lightning CLI."""
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
    """Drops arguments that belong to a different optimizer, schedule or strategy.

    Hydra merges an optimizer, schedule or strategy into the arguments of the previous one, so RMSprop would keep Adam's
    betas. Arguments that belong to no optimizer, schedule or strategy are kept, so that validation reports them.
    """
    if cls is OptimizerConfig and arguments.get("name") in optimizer_names():
        known = _optimizer_arguments()[arguments["name"]]
        of_any = set().union(*_optimizer_arguments().values())
    elif issubclass(cls, Schedule | Strategy):
        known = _schema(cls).keys()
        package, base = ("training.schedules", Schedule) if issubclass(cls, Schedule) else ("strategies", Strategy)
        of_any = {name for other in classes(f"lit_gans.{package}", base).values() for name in _schema(other)}
    else:
        return arguments
    return {name: value for name, value in arguments.items() if name in known or name not in of_any}


@cache
def _optimizer_arguments() -> dict[str, Set[str]]:
    """Returns the argument names of every optimizer, by name of the optimizer."""
    return {name: schema(OptimizerConfig(name)).keys() for name in optimizer_names()}


def construct(node: Any, key: str, base: type = object, **made: Any) -> Any:
    """Validates and constructs the object that a node describes, including its nested nodes.

    Args:
        node: class as `_target_` and arguments, in plain containers.
        key: name of the node in error messages.
        base: class that the node's class must be derived from.
        **made: constructed arguments, which are passed without validation.

    Raises:
        RefusedInput: If the class cannot be imported or is not derived from `base`, an argument is unknown, or a value
            is invalid. The message contains the message of the class or of jsonargparse.
    """
    if not is_node(node):
        raise RefusedInput(f"{key}={node!r} is not valid: expected {key}.NAME=VALUE, or null to leave it out.")
    cls = target_class(node["_target_"], key)
    if not issubclass(cls, base):
        raise RefusedInput(f"{key}: {node['_target_']} is not valid: expected a class derived from {base.__name__}.")
    arguments = {name: value for name, value in node.items() if name != "_target_"}
    values = validated(cls, arguments, key, frozenset(made))
    try:
        return cls(**values, **made)
    except RefusedInput as error:
        raise RefusedInput(_with_key(key, str(error))) from error
    except Exception as error:  # constructors raise errors of any type for invalid arguments
        raise RefusedInput(f"{key}: {error_message(error)}") from error


def validated(
    target: Target, arguments: dict[str, Any], key: str = "", skip: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Validates plain arguments against a signature, and constructs their nested nodes.

    Args:
        target: class or function.
        arguments: plain arguments.
        key: name of the object in error messages.
        skip: names of arguments to leave out of the signature.

    Raises:
        RefusedInput: If an argument is unknown, or if a value is invalid.
    """
    prefix = f"{key}." if key else ""
    names = [name for name in _schema(target) if name not in ("_target_", *skip)]
    for name in arguments:
        if name not in names:  # converted to text in the message, because a YAML key can be a number
            raise RefusedInput(f"{prefix}{name}: {target.__name__} has no such argument; {nearest(str(name), names)}")
    parser = _parser(target, skip)
    try:
        values = parser.parse_object({"it": to_class_path(arguments, key)}, defaults=False)
        return parser.instantiate(values).it.as_dict() if arguments else {}
    except RefusedInput as error:
        raise RefusedInput(_with_key(key, str(error))) from error
    except Exception as error:  # raised by jsonargparse or by the constructor of a nested class
        # jsonargparse's message lists the errors of all types of a union; the cause is more specific
        if isinstance(error.__cause__, RefusedInput):
            raise RefusedInput(_with_key(key, str(error.__cause__))) from error
        message = str(error).replace('"it.', f'"{prefix}').replace("'it.", f"'{prefix}")
        raise RefusedInput(sentence_of(message, key)) from error


def target_class(path: Any, key: str) -> type:
    """Imports and returns a class by its path.

    Raises:
        RefusedInput: If the path cannot be imported, or is not a class.
    """
    try:
        cls = pkgutil.resolve_name(path)
    except Exception as error:  # importing a user's file can raise an error of any type
        raise RefusedInput(f"{key}: {path} cannot be imported: {error or type(error).__name__}") from error
    if not inspect.isclass(cls):
        raise RefusedInput(f"{key}: {path} is not a class.")
    return cls


def is_node(value: Any) -> bool:
    """Returns whether a value is a configuration node of a class, which is a dict with `_target_`."""
    return isinstance(value, dict) and "_target_" in value


def _with_key(key: str, text: str) -> str:
    """Returns an error message with the key of the object that raised it, unless the message begins with the key."""
    if key == "model" and text.startswith(("image_size=", "channels=")):  # the model uses the values of the data
        return f"data.{text}"
    return text if not key or text.startswith(f"{key}.") else f"{key}: {text}"
