"""Binding of the processes of one machine to processor cores of their own.

Without it, the operating system moves the threads of several processes between the same cores. `torchrun
--numa-binding` binds to the memory node of an accelerator, and `deepspeed --bind_cores_to_rank` any process; both call
the program numactl, which few machines have, and neither binds processes that Lightning starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch

from lit_gans.common.errors import RefusedInput

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def physical_cores(processors: Iterable[int]) -> list[tuple[int, ...]]:
    """Returns the physical cores, each as its logical processors among those given.

    Where the system does not report its topology, each logical processor counts as a core.
    """
    cores: dict[str, list[int]] = {}
    for processor in sorted(processors):
        siblings = Path(_TOPOLOGY.format(processor))
        cores.setdefault(siblings.read_text() if siblings.is_file() else str(processor), []).append(processor)
    return [tuple(core) for core in cores.values()]


def share_of_cores(cores: list[tuple[int, ...]], process: int, processes: int) -> list[tuple[int, ...]]:
    """Returns the cores of one of several processes: neighboring, disjoint from the others', and as many as theirs.

    Raises:
        RefusedInput: there are fewer cores than processes.
    """
    if len(cores) < processes:
        raise RefusedInput(
            f"bind=cores: {processes} processes on this machine need as many cores, and there are {len(cores)}; use"
            " bind=none."
        )
    each = len(cores) // processes
    return cores[process * each : (process + 1) * each]


class CoreBinding:
    """Binds all threads of this process to its share of the cores and computes with as many threads as cores.

    Args:
        process: index of this process on its machine.
        processes: number of processes on this machine.

    Raises:
        RefusedInput: the system cannot bind processes, or there are too few cores.
    """

    def __init__(self, process: int, processes: int) -> None:
        if sys.platform != "linux":
            raise RefusedInput("bind=cores needs Linux, which alone binds a process to cores: use bind=none.")
        self._before, self._threads = os.sched_getaffinity(0), torch.get_num_threads()
        self.cores = share_of_cores(physical_cores(self._before), process, processes)
        _bind(processor for core in self.cores for processor in core)
        torch.set_num_threads(len(self.cores))

    def release(self) -> None:
        """Restores the processors and the number of threads from before, for the next run of a sweep."""
        _bind(self._before)
        torch.set_num_threads(self._threads)


def _bind(processors: Iterable[int]) -> None:
    """Binds every thread of this process: the system call binds one, and only threads that it starts later follow."""
    chosen = set(processors)
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), chosen)
