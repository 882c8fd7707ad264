"""Exit codes of `python -m lit_gans.check`, in this process."""

import argparse
from itertools import count
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore

from lit_gans.check import __main__ as command
from lit_gans.check.board import Board
from lit_gans.check.findings import Finding
from lit_gans.check.records import StepStart, dumped


@pytest.mark.parametrize(("end", "expected"), [("0", 1), ("", 1), ("None", 1), ("3", 3), ("'text'", "text")])
def test_a_script_that_exits_without_an_error_does_not_hide_the_faults(tmp_path, monkeypatch, end, expected):
    monkeypatch.setattr(command.sys, "argv", ["lit_gans.check"])
    monkeypatch.setattr(command.sys, "path", [*command.sys.path])
    monkeypatch.setattr(command.check_ranks, "faults", [Finding("kind", "where", "what", "remedy")])
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.exit({end})\n")
    try:
        code = command.main(str(script), [], False, 1, 1.0, 0, "")
    except SystemExit as ended:
        code = ended.code
    assert code == expected


def wrong_command(*arguments, script=__file__, replay=""):
    options = {"script": script, "arguments": [*arguments], "as_module": False, "replay": replay}
    return command._wrong_command(argparse.Namespace(**options))


def test_a_process_that_no_launcher_has_started_is_told_the_command(monkeypatch):
    for name in command._LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "2")  # as in a shell of a SLURM job
    torchrun = "torchrun --nproc_per_node 2 -m lit_gans.check"
    assert wrong_command("--name", "a b").endswith(f"nothing can be compared: {torchrun} {__file__} --name 'a b'")
    assert wrong_command(replay="folder") == "", "the second run of --against-one"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert wrong_command("--name", "a b") == ""
    assert "no file nothing.py" in wrong_command(script="nothing.py")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "only one process was started" in wrong_command(), "torchrun --nproc_per_node 1"


@pytest.mark.parametrize("arguments", [("--against-one", "3"), ("--against-one=3",)])
def test_against_one_after_the_script_is_told_where_it_belongs(monkeypatch, arguments):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert wrong_command("--lr", "1", *arguments).startswith("--against-one comes before the script: torchrun")


@pytest.mark.parametrize(
    ("code", "argument", "is_told"), [(2, "--steps=5", True), (2, "--lr=5", False), (1, "--steps=5", False)]
)
def test_an_option_that_the_script_does_not_know_is_told_where_it_belongs(
    tmp_path, monkeypatch, capsys, code, argument, is_told
):
    monkeypatch.setattr(command.sys, "argv", ["lit_gans.check"])
    monkeypatch.setattr(command.sys, "path", [*command.sys.path])
    script = tmp_path / "script.py"
    script.write_text(f"raise SystemExit({code})")
    with pytest.raises(SystemExit):
        command.main(str(script), [argument], False, 1, 1.0, 0, "")
    assert (f"options of the check come before {script}: {argument}" in capsys.readouterr().out) == is_told


def ended_with(monkeypatch, tmp_path, watched, against_one=0):
    """Returns the exit code on rank 0 of two, after the given steps of optimizers."""

    def finish(check, error=None):
        check.recorder.close()
        check.board, check.watched = SimpleNamespace(rank=0, world_size=2), watched

    monkeypatch.setattr(command.check_ranks, "finish", finish)
    monkeypatch.setattr(command, "record_script", lambda script, *_: script())
    monkeypatch.setattr(command.sys, "argv", ["lit_gans.check"])
    monkeypatch.setattr(command.sys, "path", [*command.sys.path])
    script = tmp_path / "script.py"
    script.write_text("")
    return command.main(str(script), ["--lr=5"], False, 7, 1.0, against_one, "")


@pytest.mark.parametrize(("watched", "code"), [({}, 1), ({"SGD": 2}, 0)])
def test_a_script_of_which_nothing_was_compared_is_an_error(tmp_path, monkeypatch, watched, code):
    assert ended_with(monkeypatch, tmp_path, watched) == code


def test_the_second_run_records_as_many_steps_as_the_ranks(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(command, "against_one_process", lambda *arguments: given.extend(arguments) or [])
    ended_with(monkeypatch, tmp_path, {"SGD": 2}, against_one=3)
    assert given == [2, 3, ["--steps", "7", str(tmp_path / "script.py"), "--lr=5"], False]


@pytest.mark.parametrize("number", ["0", "-1"])
def test_no_steps_are_refused(number):
    with pytest.raises(argparse.ArgumentTypeError, match=f"{number} must be at least 1"):
        command._positive(number)
    assert command._positive("1") == 1


class Killed(Exception):
    pass


def watch(monkeypatch, boards, between):
    """Runs the watchdog of rank 0 with a clock that adds 1 second per look, and 5 seconds of patience."""

    def kill(*_):
        raise Killed

    monkeypatch.setattr(command, "board", lambda name: next(boards))
    monkeypatch.setattr(command.time, "monotonic", count().__next__)
    monkeypatch.setattr(command.os, "kill", kill)
    watchdog = command._Watchdog("check", 5.0)
    watchdog.ended = SimpleNamespace(wait=lambda seconds: between())
    watchdog.run()


@pytest.fixture
def shared():
    store = HashStore()
    ranks = [Board(store, rank, 2, "check") for rank in range(2)]
    for rank, optimizer in zip(ranks, ("SGD of a", "SGD of b"), strict=True):
        rank.publish("event/0", dumped(StepStart(optimizer)))
    return ranks


def test_ranks_that_still_step_are_never_killed(monkeypatch, shared):
    steps = iter(range(20))

    def between():
        number = next(steps, None)
        shared[1].publish("counts", b'{"SGD": %d}' % (number or 0))
        return number is None

    watch(monkeypatch, iter(shared[:1]), between)


def test_a_store_that_the_script_creates_later_is_watched(monkeypatch, shared, capsys):
    with pytest.raises(Killed):
        watch(monkeypatch, iter([None, None, shared[0]]), lambda: False)
    assert "FAULT order_of_steps" in capsys.readouterr().out
