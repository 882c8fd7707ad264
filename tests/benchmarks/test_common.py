"""What the benchmarks share: turns, spreads and the command line."""

import json

import pytest
import torch

from benchmarks.__main__ import COMMANDS, main
from benchmarks.common import ratios, report, shown, spread, take_turns
from benchmarks.step import count_flops


def test_contenders_are_interleaved_and_every_second_round_reverses_their_order():
    calls = []
    works = {name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}
    assert take_turns(works, 3) == {"a": [3, 4, 9], "b": [2, 5, 8], "c": [1, 6, 7]}
    assert "".join(calls) == "cbaabccba"


def test_spread_and_ratios_are_of_rounds():
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "lower_quartile": 1.5, "upper_quartile": 2.5}
    assert set(spread([4.0]).values()) == {4.0}
    assert ratios([1.0, 4.0, 30.0], [1.0, 2.0, 10.0])["median"] == 2.0
    assert shown(spread([3.0, 1.0, 2.0]), ".1f", 10) == "20.0 (15.0 to 25.0)"


def test_operations_are_counted_with_those_of_gradient_penalties():
    left, right = torch.ones(2, 3), torch.ones(3, 5)
    assert count_flops(lambda: left @ right) == 2 * 2 * 3 * 5


def test_a_report_is_printed_and_written(tmp_path, capsys):
    rows = {"speed": [{"": "a", "images/s": "1"}, {"": "b", "ratio": "2"}]}
    report({"x": 1}, rows, ["on a machine"], str(tmp_path / "new/a.json"))
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1]) == json.loads((tmp_path / "new/a.json").read_text()) == {"x": 1}
    assert all(text in printed for text in ("speed", "images/s", "ratio", "on a machine"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert ("--run" if name == "record" else "--preset") in capsys.readouterr().out


def test_wrong_lines_are_answered(capsys):
    for line, sentence in (
        ([], None),
        (["stp"], None),
        (["step", "--steps=0"], "benchmarks: steps=0 must be at least 1."),
    ):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == (sentence or 1)
    assert "every table and plot of the studies" in capsys.readouterr().out
