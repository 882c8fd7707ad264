"""No process is left behind: one that fails ends those that it started, and they end with the one that started them."""

from __future__ import annotations

import os
import subprocess
import threading
import time

from lit_gans.strategies import _compat

_PARENT = "LIT_GANS_PARENT"  # the process that starts others
_CHECK = 1.0  # seconds between two looks at the parent
_GRACE = 3.0  # seconds that a process has to end by itself


def end_children(launcher: object) -> None:
    """Ends the processes that Lightning's launcher started, including those that hang, which Lightning leaves alive."""
    processes = _compat.children(launcher)
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
    """Records this process as the parent of those that it starts: they inherit the environment."""
    os.environ[_PARENT] = str(os.getpid())


def follow_parent() -> None:
    """Ends this process once the one that started it has ended, whatever it waits for.

    Does nothing where the parent is not one of ours (see `announce_parent`), as under torchrun.
    """
    parent = os.getppid()
    if os.environ.get(_PARENT) != str(parent):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()
