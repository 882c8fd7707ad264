"""Collects the arguments of running constructors, so that a checkpoint can build the same module again."""

from __future__ import annotations

import inspect
from typing import Any

from lit_gans.common.annotations import running_constructors
from lit_gans.common.errors import RefusedInput


def constructor_arguments(module: object) -> tuple[dict[str, Any], set[str]]:
    """Returns the arguments with which `type(module)(**arguments)` builds the same module, and which were passed.

    This function must be called in the constructor of the module's base class. For example, with

        class Base:
            def __init__(self, a=1, b=2): ...

        class Fixed(Base):
            def __init__(self, c, **kwargs):
                super().__init__(b=5, **kwargs)

    `Fixed(7)` has the arguments `c=7` and `a=1`, where `a` is the default of the base class. `b` is not included,
    because `Fixed` always passes it itself, even if it passes the default. Lightning's `save_hyperparameters` would
    also store `b`, which `Fixed` does not accept, and the values of local variables in place of passed arguments.

    Raises:
        RefusedInput: a value is passed to `*args`, so that no argument has its name.
    """
    result: dict[str, Any] = {}
    passed: set[str] = set()
    known: set[str] = set()  # arguments of the subclasses, and those that they pass themselves
    for index, bound in enumerate(running_constructors(module)):
        # the caller has passed the arguments of the first constructor, and each constructor those of the next
        (known if index else passed).update(_by_name(bound))
        bound.apply_defaults()
        arguments = _by_name(bound)
        result |= {name: value for name, value in arguments.items() if name not in known}
        known |= arguments.keys()
    return result, passed


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Returns the arguments of a constructor, without the instance, by the names that a caller can use."""
    result: dict[str, Any] = {}
    for name, value in [*bound.arguments.items()][1:]:
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            result |= value
        elif kind is not inspect.Parameter.VAR_POSITIONAL:
            result[name] = value
        elif value:
            raise RefusedInput(
                f"a checkpoint could not store {value!r}, which is passed as *{name} and has no name: pass it by its"
                " name, as NAME=VALUE."
            )
    return result
