"""Processes of one machine on cores of their own."""

import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from benchmarks.study import binding
from benchmarks.study.binding import CoreBinding, physical_cores, share_of_cores
from lit_gans.common.errors import RefusedInput

CORES = [(0, 4), (1, 5), (2, 6), (3, 7), (8,)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="binding needs Linux")


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_shares_are_disjoint_equal_and_of_full_cores(processes):
    shares = [share_of_cores(CORES, process, processes) for process in range(processes)]
    given = [core for share in shares for core in share]
    assert len(set(given)) == len(given)
    assert set(given) <= set(CORES)
    assert {len(share) for share in shares} == {len(CORES) // processes}


def test_more_processes_than_cores_are_refused():
    with pytest.raises(
        RefusedInput, match="bind=cores: 6 processes on this machine need as many cores, and there are 5"
    ):
        share_of_cores(CORES, 0, 6)


def test_hardware_threads_of_a_core_stay_together(tmp_path, monkeypatch):
    monkeypatch.setattr(binding, "_TOPOLOGY", str(tmp_path / "{}"))
    for processor, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / str(processor)).write_text(siblings)
    assert physical_cores({3, 0, 2, 1}) == [(0, 2), (1, 3)]
    assert physical_cores({0, 3}) == [(0,), (1 + 2,)], "only processors that this process may use"
    monkeypatch.setattr(binding, "_TOPOLOGY", str(tmp_path / "nowhere/{}"))
    assert physical_cores({2, 1}) == [(1,), (2,)]


@linux
def test_every_thread_is_bound_and_all_is_restored():
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    running, end = threading.Event(), threading.Event()

    def work():
        running.set()
        end.wait()

    worker = threading.Thread(target=work)
    worker.start()
    running.wait()
    try:
        bound = CoreBinding(0, 1 if len(physical_cores(before)) < 2 else 2)
        expected = {processor for core in bound.cores for processor in core}
        tasks = [int(path.name) for path in Path("/proc/self/task").iterdir()]
        assert worker.native_id in tasks
        assert {frozenset(os.sched_getaffinity(task)) for task in tasks} == {frozenset(expected)}
        assert torch.get_num_threads() == len(bound.cores)
        bound.release()
        assert os.sched_getaffinity(worker.native_id) == os.sched_getaffinity(0) == before
        assert torch.get_num_threads() == threads
    finally:
        end.set()
        worker.join()


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RefusedInput, match="bind=cores needs Linux"):
        CoreBinding(0, 1)
