"""The benchmark of start-up: what it reports, and that it times the commands it names. No timing is asserted."""

import json
import sys

import pytest

from lit_gans.benchmark import startup as module
from lit_gans.benchmark.startup import startup
from lit_gans.common.errors import RefusedInput

NAMES = ["import lightning.pytorch", "from lit_gans import DCGAN", "lit-gans sample", "lit-gans train modle=x"]


@pytest.mark.slow
def test_smoke_runs_every_command_it_names(tmp_path):
    result = startup("smoke", output=str(tmp_path / "startup.json"))
    assert all(seconds["median"] > 0 for seconds in result["seconds"].values())


def test_seconds_and_ratios_of_every_command_are_written_and_printed(tmp_path, capsys, monkeypatch):
    ran = []

    def seconds(command, folder, expected=0):
        ran.append((" ".join(command[1:]).partition(" checkpoint")[0], expected))
        return 1.0 + len(ran)

    monkeypatch.setattr(module, "_seconds", seconds)
    result = startup("smoke", output=str(tmp_path / "startup.json"))
    assert sorted(ran) == [
        ("-c from lit_gans import DCGAN", 0),
        ("-c import lightning.pytorch", 0),
        ("-m lit_gans sample", 0),
        ("-m lit_gans train modle=x", 2),
    ]
    assert json.loads((tmp_path / "startup.json").read_text()) == result
    assert list(result["seconds"]) == list(result["ratio_to_import"]) == NAMES
    for name in NAMES:
        median = result["seconds"][name]["median"] / result["seconds"][NAMES[0]]["median"]
        assert result["ratio_to_import"][name]["median"] == pytest.approx(median)
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1]) == result
    assert all(name in printed for name in NAMES)


def test_a_process_with_another_exit_code_ends_the_benchmark_with_what_it_said(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    with pytest.raises(RuntimeError, match="ended with exit code 1: no such thing"):
        module._seconds(command, tmp_path)
    assert module._seconds([sys.executable, "-c", "raise SystemExit(2)"], tmp_path, 2) > 0


def test_the_first_round_is_not_counted(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "_seconds", lambda *_: calls.append(1) or 1.0 + 9 * (len(calls) <= 4))
    result = startup(rounds=2)
    assert len(calls) == 12
    assert {seconds["upper_quartile"] for seconds in result["seconds"].values()} == {1.0}


def test_the_command_reaches_it(command):
    code, _, err = command("bench", "startup", "rounds=0")
    assert (code, err.strip()) == (2, "lit-gans: rounds=0 must be at least 1.")


def test_wrong_values_are_refused():
    with pytest.raises(RefusedInput, match="rounds=0 must be at least 1"):
        startup(rounds=0)
