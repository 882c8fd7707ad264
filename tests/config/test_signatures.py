"""Signatures are parsed once, and every caller owns its copy of the schema."""

from typing import Literal

import pytest

from lit_gans import RefusedInput
from lit_gans.config import signatures


def test_a_signature_is_parsed_once_and_each_schema_is_independent(monkeypatch):
    parsed = []

    class Counted(signatures.ArgumentParser):
        def __init__(self, *args, **kwargs):
            parsed.append(self)
            super().__init__(*args, **kwargs)

    def target(numbers: list[int] = [1, 2], inner: dict[str, int] = {"a": 1}):  # noqa: B006
        """Takes containers."""

    monkeypatch.setattr(signatures, "ArgumentParser", Counted)
    first = signatures.schema(target)
    first["numbers"].append(3)
    first["inner"]["a"] = 2
    assert signatures.schema(target) == {"numbers": [1, 2], "inner": {"a": 1}}
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("hint", "expected"), [(str, (True, True)), (str | None, (True, True)), (None, (False, False))]
)
def test_which_arguments_take_text(hint, expected):
    def target(it):
        """Takes one argument."""

    target.__annotations__["it"] = hint
    assert tuple("it" in signatures.text_arguments(target, mapping) for mapping in (False, True)) == expected


def test_text_or_a_dict_is_text_only_if_asked():
    def target(it: dict[str, int] | str | None = None, other: dict[str, int] | None = None, number: int | str = 0):
        """Takes a dict or text."""

    assert signatures.text_arguments(target) == frozenset()
    assert signatures.text_arguments(target, True) == {"it"}


def level(it: Literal[0, 1, 2] | None = None, rate: Literal[1, "all"] | float = 1):
    """Takes one of some integers."""
    return it


@pytest.mark.parametrize("value", [2.0, 0.0, True, False])
def test_a_number_that_only_equals_one_of_a_literal_is_refused(value):
    with pytest.raises(RefusedInput, match=f"^key.it={value} is not valid: expected one of 0, 1, 2 or null"):
        signatures.call(level, {"it": value}, "key")


def test_one_of_a_literal_null_and_another_type_of_the_union_are_accepted():
    assert signatures.call(level, {"it": 2, "rate": 1.0}) == 2
    assert signatures.call(level, {"it": None, "rate": "all"}) is None
