"""Signatures are parsed once, and every caller owns its copy of the schema."""

import pytest

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
