"""Collects the arguments of running constructors, so that a checkpoint can build the same module again."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any

from lit_gans.common.annotations import converts_arguments, names_of_positional


def constructor_arguments(module: object) -> dict[str, Any]:
    """Returns the arguments with which `type(module)(**arguments)` builds the same module.

    This function must be called in the constructor of the module's base class. For example, with

        class Base:
            def __init__(self, a=1, b=2): ...

        class Fixed(Base):
            def __init__(self, c, **kwargs):
                super().__init__(b=5, **kwargs)

    `Fixed(7)` has the arguments `c=7` and `a=1`, where `a` is the default of the base class. `b` is not included,
    because `Fixed` always passes it itself, even if it passes the default. The decorator `converts_arguments` of each
    constructor knows which arguments were passed. Lightning's `save_hyperparameters` reads the same frames, but it also
    stores `b`, which `Fixed` does not accept, and it stops at a decorated constructor.
    """
    (arguments, _, _), *bases = reversed(_calls(module))  # from the subclass to the base
    result, seen = {**arguments}, {*arguments}
    for arguments, defaults, passed in bases:
        result |= {
            name: value
            for name, value in arguments.items()
            if name not in seen | passed and name in defaults and _equal(value, defaults[name])
        }
        seen |= {*arguments}
    return result


def _calls(module: object) -> list[tuple[dict[str, Any], dict[str, Any], set[str]]]:
    """Returns the arguments, the defaults and the names of the passed arguments of a module's running constructors.

    The order is from the base to the subclass.
    """
    functions = [inspect.unwrap(vars(cls)["__init__"]) for cls in type(module).__mro__ if "__init__" in vars(cls)]
    by_code = {function.__code__: function for function in functions if inspect.isfunction(function)}
    calls: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = []
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        names, _, rest, values = inspect.getargvalues(frame)
        if frame.f_code in by_code and values[names[0]] is module:
            parameters = inspect.signature(by_code[frame.f_code]).parameters
            arguments = {name: values[name] for name in names[1:]} | (values[rest] if rest else {})
            calls.append((arguments, {name: parameter.default for name, parameter in parameters.items()}, set()))
        elif calls and _is_decorator(frame) and values["self"] is module:
            calls[-1][2].update(values["kwargs"], names_of_positional(values["constructor"], values["args"]))
        frame = frame.f_back
    return calls


def _is_decorator(frame: FrameType) -> bool:
    """Returns whether a frame runs the function with which `converts_arguments` replaces a constructor."""
    return frame.f_globals.get("__name__") == converts_arguments.__module__ and frame.f_code.co_name == "wrapper"


def _equal(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)
