"""Values of registered classes in jsonargparse's parsers."""

import sys

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from lit_gans.common.errors import RefusedInput
from lit_gans.common.parsing import register_value


class Interval:
    def __init__(self, first=0, last=9):
        self.first, self.last = first, last

    @classmethod
    def from_plain(cls, plain):
        if isinstance(plain, str):
            raise RefusedInput(f"{plain}: there is no such interval")
        return cls(**plain["init_args"])

    @classmethod
    def changed(cls, previous, changes):
        return cls(**{**vars(previous), **changes})


register_value(Interval, lambda interval: {"class_path": "Interval", "init_args": vars(interval)})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (1, 9)),
        (["--interval.last=5"], (1, 5)),
        (["--interval.last=5", "--interval.first=4"], (4, 5)),
        (["--interval", "{last: 5}"], (1, 5)),
        (["--interval", "{class_path: Interval, init_args: {last: 5}}"], (0, 5)),
    ],
)
def test_a_registered_value_is_read_whole_or_changed(arguments, expected):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--interval", type=float | Interval, default=Interval(1))
    parsed = parser.parse_args(arguments)
    again = parser.parse_string(parser.dump(parsed))
    for interval in (parsed.interval, again.interval):
        assert (interval.first, interval.last) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wide", "wide: there is no such interval"),
        ("no.such.module", "no.such.module cannot be imported: No module named 'no'"),
        ("[1, 2", "interval"),
    ],
)
def test_an_invalid_value_of_a_registered_class_is_an_error_with_its_key(text, sentence):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--interval", type=Interval)
    with pytest.raises(ArgumentError, match='Parser key "interval"') as raised:
        parser.parse_args(["--interval", text])
    assert sentence in str(raised.value)


def test_only_a_parser_imports_the_module_of_a_class(tmp_path, monkeypatch):
    """`from_plain` also reads the descriptions in checkpoints, which must not import code."""
    (tmp_path / "users_intervals.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--interval", type=Interval)
    parser.parse_args(["--interval", "{class_path: users_intervals.Mine, init_args: {}}"])
    assert "users_intervals" in sys.modules
