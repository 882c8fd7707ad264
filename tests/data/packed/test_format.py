"""What one process opened is not used by those that it forks or sends it to."""

import multiprocessing
import os
import pickle
import sys

import pytest

from lit_gans.data.packed.format import PerProcess


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_each_process_opens_its_own_once():
    calls = []
    opened = PerProcess(lambda: (calls.append(1), os.getpid(), len(calls)))
    assert opened() == opened() == (None, os.getpid(), 1)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=lambda: queue.put([opened(), opened()]))
    child.start()
    assert queue.get() == [(None, child.pid, 2)] * 2
    child.join()
    assert opened() == (None, os.getpid(), 1)


def test_it_is_sent_closed():
    opened = PerProcess(os.getpid)
    opened()
    assert pickle.loads(pickle.dumps(opened))._opened is None
