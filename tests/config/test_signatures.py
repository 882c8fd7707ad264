"""Schemas from signatures, and refusals of values with their keys."""

import inspect
from dataclasses import is_dataclass
from typing import Literal

import pytest

from lit_gans import RefusedInput
from lit_gans.config import signatures
from lit_gans.config.groups import GROUPS
from lit_gans.training.optim import OptimizerConfig


def test_every_schema_is_a_copy():
    def target(numbers: list[int] = [1, 2], inner: dict[str, int] = {"a": 1}):  # noqa: B006
        """Takes containers."""

    first = signatures.schema(target)
    first["numbers"].append(3)
    first["inner"]["a"] = 2
    assert signatures.schema(target) == {"numbers": [1, 2], "inner": {"a": 1}}


def level(it: Literal[0, 1, 2] | None = None, rate: Literal[1, "all"] | float = 1):
    """Takes one of some integers."""


def test_values_of_a_union_with_a_literal_are_accepted_and_other_values_are_errors_with_the_key():
    with pytest.raises(RefusedInput, match=r"^key\.it=3: expected one of 0, 1, 2 or null\.$"):
        signatures.validated(level, {"it": 3}, "key")
    assert signatures.validated(level, {"it": 2, "rate": 1.0}) == {"it": 2, "rate": 1.0}
    assert signatures.validated(level, {"it": None, "rate": "all"}) == {"it": None, "rate": "all"}


class Counter:
    def __init__(self, num: int = 1):
        self.half = 1 // num


def test_an_error_of_a_constructor_is_shown_with_the_key():
    node = {"_target_": f"{__name__}.Counter"}
    with pytest.raises(RefusedInput, match=r"^data\.counter: integer division or modulo by zero"):
        signatures.construct(node | {"num": 0}, "data.counter")
    with pytest.raises(RefusedInput, match=r"^data\.counter\.nun: Counter has no such argument; did you mean 'num'\?"):
        signatures.construct(node | {"nun": 0}, "data.counter")


def is_immutable(value):
    """Whether a value cannot change, all the way down."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_immutable, value))
    if isinstance(value, OptimizerConfig):  # see `test_a_value_that_modules_share_cannot_change`
        return all(map(is_immutable, (value.schedule, *value.options.values())))
    if is_dataclass(value) and not isinstance(value, type):
        return value.__dataclass_params__.frozen and all(map(is_immutable, vars(value).values()))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | type)


OURS = {
    cls
    for group in GROUPS.values()
    for registered in group.classes().values()
    for cls in registered.__mro__
    if cls.__module__.startswith("lit_gans.")
}


@pytest.mark.parametrize("cls", sorted(OURS, key=lambda cls: cls.__qualname__))
def test_no_default_of_a_registered_class_can_change(cls):
    """A change would reach every object that is constructed later."""
    signature = inspect.signature(cls.__init__)
    assert not [
        each
        for each in signature.parameters.values()
        if each.default is not each.empty and not is_immutable(each.default)
    ]
