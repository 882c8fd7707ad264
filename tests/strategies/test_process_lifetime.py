"""Processes end with the one that started them, and are ended by it, also those that hang."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from lit_gans.strategies import processes as process_lifetime

from . import ranks
from .sabotage import FOR_EVER, is_running

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

HANGS = f"import time; print('ready', flush=True); time.sleep({FOR_EVER})"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HANGS}"


def started(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def test_processes_that_hang_are_ended_the_deaf_ones_too(monkeypatch):
    monkeypatch.setattr(process_lifetime, "_GRACE", 0.2)
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), num_processes=3, num_nodes=1)
    launcher.procs = [started(HANGS), started(DEAF)]
    process_lifetime.end_children(launcher)
    assert [process.wait() for process in launcher.procs] == [-signal.SIGTERM, -signal.SIGKILL]


def test_a_launcher_that_started_nothing_has_nothing_to_end():
    process_lifetime.end_children(None)


def on_a_rank(folder):
    """Starts a process that hangs, and ends before it."""
    process_lifetime.announce_parent()
    if os.fork():
        while not (folder / "follower").exists():
            time.sleep(0.05)
        return
    process_lifetime.follow_parent()
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "follower")
    time.sleep(FOR_EVER)


def test_a_process_ends_with_the_one_that_announced_itself(tmp_path):
    ranks.run("tests.strategies.test_process_lifetime.on_a_rank", tmp_path, 1, folder=tmp_path)
    follower = int((tmp_path / "follower").read_text())
    while is_running(follower):  # for ever: the test's time limit fails
        time.sleep(0.05)


def parent_death_signal():
    """Returns the signal that Linux sends this process when its parent ends; 0 for none."""
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(found))  # PR_GET_PDEATHSIG
    return found.value


@pytest.mark.parametrize("announced", [None, "1"])
def test_a_process_does_not_follow_another_parent(monkeypatch, announced):
    monkeypatch.delenv("LIT_GANS_PARENT", raising=False)
    if announced:
        monkeypatch.setenv("LIT_GANS_PARENT", announced)
    before = parent_death_signal()
    process_lifetime.follow_parent()
    assert parent_death_signal() == before != signal.SIGKILL
