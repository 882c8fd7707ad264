"""Schemas from signatures, and construction of objects from validated values.

jsonargparse reads the signatures and validates; error messages name the key.
"""

from __future__ import annotations

import copy
import inspect
import pkgutil
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import PurePath
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser
from jsonargparse.typing import register_type
from omegaconf import MISSING

from lit_gans.checkpoints.format import from_plain, to_plain
from lit_gans.common.errors import RefusedInput, install_command, nearest
from lit_gans.config.values import missing_arguments, refuse_inexact, sentence, with_key
from lit_gans.training.optim import Optimizer, optimizer_names
from lit_gans.training.schedules import Schedule

Target = type | Callable[..., Any]
_TEXT = (str, PurePath)
_EXTRAS = {"wandb": "wandb", "mlflow": "mlflow", "mlxtend": "demo"}  # module: our extra


def _optimizer(plain: Any) -> Optimizer:
    """Returns the optimizer of a name, or of a mapping with its name and arguments."""
    if isinstance(plain, str):
        return Optimizer(plain)
    if not isinstance(plain, dict):
        raise ValueError(f"{plain!r}: expected the name of an optimizer of torch.optim, or a mapping of its arguments")
    return from_plain(plain) if "class_path" in plain else Optimizer(**from_plain(plain))


register_type(Optimizer, to_plain, _optimizer)  # its arguments are those of torch's class, which a signature cannot say


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


@cache
def _parser(target: Target, skip: frozenset[str] = frozenset()) -> ArgumentParser:
    """Returns the parser of the arguments of a class or function, which are below the key `it`."""
    parser = ArgumentParser(exit_on_error=False)
    add = parser.add_class_arguments if inspect.isclass(target) else parser.add_function_arguments
    add(target, "it", fail_untyped=False, skip={*skip})
    return parser


def _to_target(node: Any) -> Any:
    if is_dataclass(node) or isinstance(node, Optimizer):  # inside a tuple, which jsonargparse leaves as it is
        node = to_plain(node)
    if isinstance(node, dict) and "class_path" in node:
        return {"_target_": node["class_path"], **_to_target(node.get("init_args", {}))}
    if isinstance(node, dict):
        return {key: _to_target(value) for key, value in node.items()}
    return [_to_target(item) for item in node] if isinstance(node, list | tuple) else node


@cache
def text_arguments(target: Target, or_mapping: bool = False) -> frozenset[str]:
    """Returns the names of the arguments that take arbitrary text or paths.

    Args:
        target: class or function.
        or_mapping: includes arguments that take text or a dict.
    """
    return frozenset(name for name, hint in _hints(target).items() if _is_text(hint, or_mapping))


@cache
def _hints(target: Target) -> dict[str, Any]:
    """Returns the types of the arguments of a class or function, those of subclasses before those of their bases."""
    found: dict[str, Any] = {}
    for function in constructors(target):
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError):  # names that only type checkers see
            hints = {name: hint for name, hint in function.__annotations__.items() if not isinstance(hint, str)}
        found = hints | found
    found.pop("return", None)
    return found


def _is_text(hint: Any, or_mapping: bool) -> bool:
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if or_mapping:
        members = tuple(item for item in members if (get_origin(item) or item) is not dict)
    texts = [item for item in members if item is not type(None)]
    return bool(texts) and all(isinstance(item, type) and issubclass(item, _TEXT) for item in texts)


def constructors(target: Target) -> list[Callable[..., Any]]:
    """Returns the functions whose arguments a call accepts: for a class, its constructor and those that `**kwargs` is
    passed to.
    """
    if not inspect.isclass(target):
        return [target]
    found = []
    for base in target.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        function = inspect.unwrap(vars(base)["__init__"])
        found.append(function)
        if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
            break
    return found


def construct(node: Any, key: str, base: type = object) -> Any:
    """Validates and constructs a node (a class by `_target_` or `class_path`, with arguments) and the nodes inside it.

    Args:
        node: plain containers.
        key: name of the node in error messages.
        base: class that the node's class must be derived from.

    Raises:
        RefusedInput: a class that cannot be imported or is not derived from `base`, an unknown argument, or an invalid
            value.
    """
    if not _is_node(node):
        raise RefusedInput(
            f"{key}={node!r} is not valid: expected {key}.NAME=VALUE, which sets one of its arguments; null leaves it"
            " out."
        )
    path, arguments = _split(node)
    cls = target_class(path, key)
    if not issubclass(cls, base):
        raise RefusedInput(f"{key}: {path} is not valid: expected a class derived from {base.__name__}.")
    arguments = {**without_remains(cls, arguments)}
    if cls is not Optimizer:
        return call(cls, arguments, key)
    own: dict[str, Any] = {name: arguments.pop(name) for name in ("name", "schedule") if name in arguments}
    options = {name: from_plain(_construct_inside(value, f"{key}.{name}")) for name, value in arguments.items()}
    return call(partial(Optimizer, **options), own, key)


def call(target: Target, arguments: dict[str, Any], key: str = "") -> Any:
    """Calls a class or function with plain arguments; validates them against the signature and constructs nodes.

    Raises:
        RefusedInput: an unknown argument, or an invalid value.
    """
    prefix = f"{key}." if key else ""
    preset = target.keywords if isinstance(target, partial) else {}
    bare = target.func if isinstance(target, partial) else target
    _refuse_unknown(bare, arguments, prefix)
    inner = {name: _construct_inside(value, f"{prefix}{name}") for name, value in arguments.items() if _has_node(value)}
    inner = {name: tuple(value) if _is_tuple(bare, name) else value for name, value in inner.items()}
    plain = {name: value for name, value in arguments.items() if name not in inner and name not in preset}
    refuse_inexact(bare, _hints(bare), plain, prefix)
    missing = missing_arguments(target, {*arguments})
    if missing:
        raise RefusedInput(
            f"{prefix}{missing[0]} is required by {bare.__name__}: give it as {prefix}{missing[0]}=VALUE."
        )
    parser = _parser(bare, frozenset({*inner, *preset}))
    try:
        values = parser.parse_object({"it": plain}).it.as_dict() if plain else {}
        # a mapping without a class becomes a node of the argument's own class
        values = {name: _construct_inside(value, f"{prefix}{name}") for name, value in values.items()}
        return target(**values, **inner)
    except RefusedInput as error:
        raise RefusedInput(with_key(key, str(error))) from error
    except NotImplementedError as error:
        raise RefusedInput(f"{key}: {str(error).splitlines()[0]}: a base class; name another by _target_.") from error
    except ArgumentError as error:
        raise RefusedInput(sentence(prefix, plain, str(error))) from error
    except ModuleNotFoundError as error:
        extra = next((extra for module, extra in _EXTRAS.items() if module in str(error)), None)
        advice = install_command(extra) if extra else f"install {error.name or 'it'}."
        raise RefusedInput(
            f"{key}: a package is missing ({str(error).splitlines()[0].split('. ')[0]}); {advice}"
        ) from error


def target_class(path: Any, key: str) -> type:
    """Imports and returns a class by its path.

    Raises:
        RefusedInput: the path cannot be imported, or is not a class.
    """
    if not isinstance(path, str):
        raise RefusedInput(f"{key}._target_={path!r} is not valid: expected the path of a class, package.module.Class.")
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # importing a user's file may raise anything
        raise RefusedInput(f"{key}: {path} cannot be imported: {error or type(error).__name__}") from error
    if not inspect.isclass(found):
        raise RefusedInput(f"{key}: {path} is not a class.")
    return found


def _refuse_unknown(target: Target, arguments: dict[str, Any], prefix: str) -> None:
    names = [name for name in _schema(target) if name != "_target_"]
    unknown = next((name for name in arguments if name not in names), None)
    if unknown is not None:
        advice = nearest(str(unknown), names)  # YAML may have a number as a name
        raise RefusedInput(f"{prefix}{unknown}: {target.__name__} has no such argument; {advice}")


def without_remains(cls: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Drops arguments that `cls` does not have: an option that replaces an optimizer or schedule is merged over the
    arguments of the previous one (Adam's betas under RMSprop).
    """
    if cls is Optimizer and arguments.get("name") in optimizer_names():
        return {name: value for name, value in arguments.items() if name in schema(Optimizer(arguments["name"]))}
    if not issubclass(cls, Optimizer | Schedule):
        return arguments
    return {name: value for name, value in arguments.items() if name in schema(cls)}


def _split(node: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if "class_path" in node:
        return node["class_path"], node.get("init_args", {})
    return node["_target_"], {name: value for name, value in node.items() if name != "_target_"}


def _is_node(value: Any) -> bool:
    return isinstance(value, dict) and ("_target_" in value or "class_path" in value)


def _is_tuple(target: Target, name: str) -> bool:
    return any(get_origin(get_type_hints(function).get(name)) is tuple for function in constructors(target))


def _has_node(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return _is_node(value) or any(map(_has_node, items))


def _construct_inside(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_construct_inside(item, f"{key}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict) and not _is_node(value):
        return {name: _construct_inside(item, f"{key}.{name}") for name, item in value.items()}
    return construct(value, key) if _is_node(value) else value
