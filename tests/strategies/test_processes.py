"""Processes find each other whatever a store holds, and end with the one that started them, also those that hang."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch.distributed import HashStore

from lit_gans.strategies import processes
from lit_gans.strategies.processes import rendezvous

from . import ranks
from .sabotage import FOR_EVER, is_running

on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

HANGS = f"import time; print('ready', flush=True); time.sleep({FOR_EVER})"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HANGS}"


def started(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def test_processes_that_hang_are_ended_the_deaf_ones_too(monkeypatch):
    monkeypatch.setattr(processes, "_GRACE", 0.2)
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), num_processes=3, num_nodes=1)
    launcher.procs = [started(HANGS), started(DEAF)]
    processes.end_children(launcher)
    assert [process.wait() for process in launcher.procs] == [-signal.SIGTERM, -signal.SIGKILL]


def on_a_rank(folder):
    """Starts a process that hangs, and ends before it."""
    processes.announce_parent()
    if os.fork():
        while not (folder / "follower").exists():
            time.sleep(0.05)
        return
    processes.follow_parent()
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "follower")
    time.sleep(FOR_EVER)


@on_linux
def test_a_process_ends_with_the_one_that_announced_itself(tmp_path):
    ranks.run("tests.strategies.test_processes.on_a_rank", tmp_path, 1, folder=tmp_path)
    follower = int((tmp_path / "follower").read_text())
    while is_running(follower):  # for ever: the test's time limit fails
        time.sleep(0.05)


def parent_death_signal():
    """Returns the signal that Linux sends this process when its parent ends; 0 for none."""
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(found))  # PR_GET_PDEATHSIG
    return found.value


@on_linux
def test_a_process_does_not_follow_another_parent(monkeypatch):
    monkeypatch.setenv("LIT_GANS_PARENT", str(os.getpid()))
    before = parent_death_signal()
    processes.follow_parent()
    assert parent_death_signal() == before != signal.SIGKILL


# ---- rendezvous: ranks that torchrun starts again, with the store of those before


def attempt(store, ranks, order):
    with ThreadPoolExecutor(ranks) as threads:
        names = [threads.submit(rendezvous, store, rank, ranks, timedelta(minutes=5)) for rank in order]
        return {name.result() for name in names}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_each_attempt_has_a_unique_name(order):
    store = HashStore()
    found = [attempt(store, 3, order) for _ in range(3)]
    assert all(len(names) == 1 for names in found)
    assert len(set.union(*found)) == 3


def test_a_rank_waits_for_the_ranks_of_its_attempt_and_ignores_earlier_attempts():
    store = HashStore()
    attempt(store, 2, (0, 1))
    with pytest.raises(TimeoutError, match=r"ranks \[1\] have not started within 0 s after rank 0"):
        rendezvous(store, 0, 2, timeout=timedelta(seconds=0.3))
    attempt(store, 2, (0, 1))
    with pytest.raises(TimeoutError, match="rank 0 has not started within 0 s after rank 1"):
        rendezvous(store, 1, 2, timeout=timedelta(seconds=0.3))
