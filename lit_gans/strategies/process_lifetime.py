"""Process lifetime: a failing process ends its children, and children end with the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from lit_gans.common._compat.lightning import children

_PARENT = "LIT_GANS_PARENT"  # pid of the process that starts others
_GRACE = 3.0  # seconds before a process is killed
_SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl


def end_children(launcher: object) -> None:
    """Ends the processes that Lightning's launcher started, including hanging ones, which Lightning leaves running."""
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
    """Records this process as a parent in the environment, which its children inherit."""
    os.environ[_PARENT] = str(os.getpid())


def follow_parent() -> None:
    """Lets Linux kill this process once its parent has ended, even if it is blocked; does nothing on other systems.

    Does nothing if the parent did not call `announce_parent`, as under torchrun.
    """
    if sys.platform == "linux" and os.environ.get(_PARENT) == str(os.getppid()):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.environ[_PARENT] != str(os.getppid()):  # it ended before
            sys.exit(1)
