"""From signatures: their defaults as plain values, and objects from checked values.

jsonargparse reads the signatures and checks; errors are sentences that name the key.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from argparse import ArgumentError
from collections.abc import Callable
from functools import partial
from typing import Any

from jsonargparse import ArgumentParser
from omegaconf import MISSING

from lit_gans.common.errors import RefusedInput, install_command, nearest
from lit_gans.config.registry import current_folder_on_path
from lit_gans.training.optim import Optimizer, Schedule

_EXTRAS = {"wandb": "wandb", "mlflow": "mlflow", "mlxtend": "demo"}  # module: our extra


def schema(target: type | Callable[..., Any]) -> dict[str, Any]:
    """Returns the arguments of a class or function with their defaults; what has none is `???`.

    A value whose class the user may choose becomes a node of its own with `_target_`.
    """
    parser = ArgumentParser(exit_on_error=False)
    if inspect.isclass(target):
        parser.add_class_arguments(target, "it", fail_untyped=False)
    else:
        parser.add_function_arguments(target, "it", fail_untyped=False)
    defaults = parser.get_defaults()
    values = defaults.it.as_dict() if "it" in defaults else {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.default is parameter.empty and name in values:
            values[name] = MISSING
    values = _to_target(values)
    return {"_target_": f"{target.__module__}.{target.__qualname__}", **values} if inspect.isclass(target) else values


def _to_target(node: Any) -> Any:
    if isinstance(node, dict) and "class_path" in node:
        return {"_target_": node["class_path"], **_to_target(node.get("init_args", {}))}
    if isinstance(node, dict):
        return {key: _to_target(value) for key, value in node.items()}
    return [_to_target(item) for item in node] if isinstance(node, list | tuple) else node


def construct(node: dict[str, Any], key: str) -> Any:
    """Checks and constructs a `class_path` / `init_args` node and those inside it; `key` names it in errors."""
    cls = _class(node["class_path"], key)
    return call(cls, _accepted(cls, node["init_args"], key), key)


def call(target: type | Callable[..., Any], arguments: dict[str, Any], key: str = "") -> Any:
    """Calls a class or function with plain arguments, each checked against the signature and nodes constructed."""
    prefix = f"{key}." if key else ""
    inner = {name: _construct_inside(value, f"{prefix}{name}") for name, value in arguments.items() if _has_node(value)}
    plain = {name: value for name, value in arguments.items() if name not in inner}
    parser = ArgumentParser(exit_on_error=False)
    preset = target.keywords if isinstance(target, partial) else {}
    plain = {name: value for name, value in plain.items() if name not in preset}
    bare = target.func if isinstance(target, partial) else target
    add = parser.add_class_arguments if inspect.isclass(bare) else parser.add_function_arguments
    add(bare, "it", fail_untyped=False, skip={*inner, *preset})
    try:
        values = parser.parse_object({"it": plain}).it.as_dict() if plain else {}
        return target(**values, **inner)
    except RefusedInput as error:
        raise RefusedInput(f"{key}: {error}" if key else str(error)) from error
    except ArgumentError as error:
        raise RefusedInput(_sentence(prefix, plain, str(error))) from error
    except ModuleNotFoundError as error:
        extra = next((extra for module, extra in _EXTRAS.items() if module in str(error)), None)
        advice = install_command(extra) if extra else f"install {error.name}."
        raise RefusedInput(
            f"{key}: a package is missing ({str(error).splitlines()[0].split('. ')[0]}); {advice}"
        ) from error


def _class(path: str, key: str) -> type:
    current_folder_on_path()
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # whatever the import of a user's file raises
        raise RefusedInput(f"{key}: {path} cannot be imported: {error or type(error).__name__}") from error
    if not inspect.isclass(found):
        raise RefusedInput(f"{key}: {path} is no class.")
    return found


def _accepted(cls: type, init_args: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns the arguments that `cls` has. A group option that replaces an optimizer or schedule by another merges
    over the arguments of the first (Adam's betas under RMSprop): those are dropped, anything else is refused.
    """
    names = [name for name in schema(cls) if name != "_target_"]
    unknown = [name for name in init_args if name not in names]
    if unknown and not issubclass(cls, Optimizer | Schedule):
        raise RefusedInput(f"{key}.{unknown[0]}: {cls.__name__} has no such argument; {nearest(unknown[0], names)}")
    return {name: value for name, value in init_args.items() if name in names}


def _has_node(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_node(item) for item in value)
    return isinstance(value, dict) and "class_path" in value


def _construct_inside(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_construct_inside(item, f"{key}[{index}]") for index, item in enumerate(value)]
    return construct(value, key) if _has_node(value) else value


def _sentence(prefix: str, values: dict[str, Any], report: str) -> str:
    """Turns jsonargparse's report of one wrong value into a sentence."""
    name = re.search(r'key "it\.([^"]+)"', report)
    found = re.findall(r"Expected an? (.*?)(?:\. Got value.*)?\s*$", report, flags=re.M)
    expected = " or ".join(dict.fromkeys(_readable(text) for text in found))
    if name is None or not expected:
        return f"{prefix}{' '.join(report.split())}"
    return f"{prefix}{name[1]}={values.get(name[1].partition('.')[0])!r} is not valid: expected {expected}."


def _readable(text: str) -> str:
    return re.sub(r"<class '([\w.]+)'>", r"\1", text).replace("typing.", "").replace("NoneType", "null")
