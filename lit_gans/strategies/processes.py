"""Rendezvous, timeouts and lifetime of the processes of a training run.

torchrun restarts a run with the store of the previous attempt. The entries of that attempt must not be read: the first
process could read the address of a process that has exited (pytorch issue 135712). The restart count does not identify
an attempt, because each node counts its own restarts. Therefore the ranks of each attempt first agree on a new name.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from functools import cache
from itertools import count

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore

from lit_gans.common._compat.lightning import children
from lit_gans.common._compat.torch import process_groups, set_timeout

START_TIMEOUT = timedelta(minutes=10)  # timeout of the rendezvous
_POLL = 0.05  # polling interval of the rendezvous, in seconds
_WORLDS = count()  # numbers the world process groups of this process; each run of a sweep creates one
_PARENT = "LIT_GANS_PARENT"  # environment variable with the pid of the process that starts the other processes
_GRACE = 3.0  # time between terminating and killing a process, in seconds
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl

# ---- rendezvous and timeouts


def starting_timeout(timeout: timedelta) -> timedelta:
    """Returns the timeout until all ranks have started.

    This timeout is long, because ranks do not start simultaneously.
    """
    return max(timeout, START_TIMEOUT)


def limit_waiting(timeout: timedelta) -> None:
    """Sets this rank's timeout in all existing process groups."""
    for group in process_groups():
        set_timeout(group, timeout)


def join_world(backend: str, rank: int, world_size: int, device: torch.device, timeout: timedelta) -> None:
    """Creates the group of all processes if torchrun has started them. Lightning then uses the existing group."""
    store = None if distributed.is_initialized() else attempt_store()
    if store is None:
        return
    distributed.init_process_group(
        backend,
        store=PrefixStore(f"world/{next(_WORLDS)}", store),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        device_id=None if device.type == "cpu" else device,
    )
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


@cache
def attempt_store() -> Store | None:
    """Returns torchrun's store with a prefix that is unique to this attempt, or None without torchrun.

    Every rank must call this function.

    Raises:
        TimeoutError: a rank has not started within 10 minutes.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = PrefixStore("lit_gans", store)
    return PrefixStore(rendezvous(store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), store)


def rendezvous(store: Store, rank: int, ranks: int, timeout: timedelta = START_TIMEOUT) -> str:
    """Returns the same new name on all running ranks, regardless of entries of earlier attempts in the store.

    Each rank publishes its own name. Rank 0 repeatedly publishes all names that it reads. A rank answers with rank 0's
    name once it finds its own name among the published names. Rank 0 returns when all ranks have answered.
    """
    name, until = uuid.uuid4().hex, time.monotonic() + timeout.total_seconds()
    store.set(f"here/{rank}", name)
    answers = {other: f"{name}/{other}" for other in range(1, ranks)}
    while True:
        if rank == 0:
            answers = {other: key for other, key in answers.items() if not store.check([key])}
            if not answers:
                return name
            seen = [f"here/{other}" for other in range(ranks)]
            store.set("seen", ",".join(store.get(key).decode() if store.check([key]) else "" for key in seen))
        elif store.check(["seen"]):
            names = store.get("seen").decode().split(",")
            if names[rank] == name:
                store.set(f"{names[0]}/{rank}", "")
                return names[0]
        if time.monotonic() > until:
            missing = f"ranks {sorted(answers)} have" if rank == 0 else "rank 0 has"
            raise TimeoutError(f"{missing} not started within {timeout.total_seconds():.0f} s after rank {rank}.")
        time.sleep(_POLL)


# ---- lifetime


def end_children(launcher: object) -> None:
    """Terminates the processes that Lightning's launcher has started, and kills the processes that do not exit.

    Lightning itself leaves hanging processes running.
    """
    processes = children(launcher)
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def announce_parent() -> None:
    """Stores the pid of this process in an environment variable, which child processes inherit."""
    os.environ[_PARENT] = str(os.getpid())


def follow_parent() -> None:
    """Requests that Linux kills this process when its parent exits, even if this process is blocked.

    Does nothing on other operating systems, or if the parent did not call `announce_parent`, for example under
    torchrun.
    """
    if sys.platform == "linux" and os.environ.get(_PARENT) == str(os.getppid()):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.environ[_PARENT] != str(os.getppid()):  # the parent exited before the request
            sys.exit(1)
