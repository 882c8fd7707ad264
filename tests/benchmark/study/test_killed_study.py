"""The processes of a study that was killed end with it, also those that do not listen to SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

from lit_gans.benchmark.study import hosts, rank
from lit_gans.benchmark.study.contract import Cell
from lit_gans.benchmark.study.training import model_node
from tests.benchmark.study.namespaces import NEEDS_NAMESPACES
from tests.strategies.sabotage import FOR_EVER

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc"),
]


def session(leader):
    """Command lines of the processes of a session that run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == leader and state != "Z":
                found.append((folder / "cmdline").read_text())
        except OSError:  # it has ended
            continue
    return found


def killed_once_it_runs(process, text, num):
    """Kills a process once this many of its session have the text in their command lines, and waits for all to end."""
    while sum(text in line for line in session(process.pid)) < num:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    while session(process.pid):  # for ever: the test's time limit fails
        time.sleep(0.1)


def test_the_ranks_of_a_killed_study_end(tmp_path):
    command = [sys.executable, "-m", "lit_gans", "bench", "study", "preset=smoke", "parts=[optimizations]"]
    command += ["gans=[gan]", "max_ranks=2", f"output={tmp_path}", "sizes={fixed_steps:100000000}"]
    study = subprocess.Popen(command, start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    killed_once_it_runs(study, "forkserver", 3)  # the server and two ranks


@NEEDS_NAMESPACES
def test_the_hosts_of_a_killed_process_end():
    model = model_node("dcgan", image_size=16, width=8)
    settings = {"model": model, "batch_size": 2, "device": "cpu", "steps": 10**8, "hosts": 2}
    call = f"from {hosts.__name__} import measure_hosts; measure_hosts({settings | {'megabits': 100.0, 'delay': 1.0}})"
    process = subprocess.Popen([sys.executable, "-c", call], start_new_session=True)
    killed_once_it_runs(process, "study.host\0", 2)


def deaf(cell):
    """Stands for a measurement that waits for a rank that has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOR_EVER)


def test_a_rank_that_hears_no_signal_ends_with_the_study():
    ends, alive = Pipe(duplex=False)
    child = os.fork()
    if not child:
        alive.close()
        rank._answer = deaf
        rank.main(Cell("batch", "one"), {}, 1, Pipe(duplex=False)[1], ends)
    ends.close()
    alive.close()  # as the system does for a study that was killed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
