"""Exit codes of `python -m lit_gans.check`, in this process."""

import argparse

import pytest

from lit_gans.check import __main__ as command
from lit_gans.check.findings import Finding


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
