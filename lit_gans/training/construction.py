"""Collects the arguments of running constructors, so that a checkpoint can build the same module again."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any


def constructor_arguments(module: object) -> dict[str, Any]:
    """Returns the arguments with which `type(module)(**arguments)` builds the same module.

    This function must be called in the constructor of the module's base class. For example, with

        class Base:
            def __init__(self, a=1, b=2): ...

        class Fixed(Base):
            def __init__(self, c, **kwargs):
                super().__init__(b=5, **kwargs)

    `Fixed(7)` has the arguments `c=7` and `a=1`, where `a` is the default of the base class. `b` is not included,
    because `Fixed` always passes it itself. Lightning's `save_hyperparameters` reads the same frames, but it also
    stores `b`, which `Fixed` does not accept, and it stops at a decorated constructor.
    """
    result: dict[str, Any] = {}
    seen: set[str] = set()
    for arguments, defaults in reversed([*_calls(module)]):  # from the subclass to the base
        if not seen:
            defaults = arguments
        result |= {
            name: value for name, value in arguments.items() if name not in seen and _equal(value, defaults.get(name))
        }
        seen |= {*arguments}
    return result


def _calls(module: object) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields the arguments and defaults of the running constructors of a module, from the base to the subclass."""
    functions = [inspect.unwrap(vars(cls)["__init__"]) for cls in type(module).__mro__ if "__init__" in vars(cls)]
    by_code = {function.__code__: function for function in functions if inspect.isfunction(function)}
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        names, _, rest, values = inspect.getargvalues(frame)
        if frame.f_code in by_code and values[names[0]] is module:
            parameters = inspect.signature(by_code[frame.f_code]).parameters
            arguments = {name: values[name] for name in names[1:]} | (values[rest] if rest else {})
            yield arguments, {name: parameter.default for name, parameter in parameters.items()}
        frame = frame.f_back


def _equal(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)
