"""Process lifetime: a failing process ends its children, and children end with the process that started them."""

from __future__ import annotations

import os
import subprocess
import threading
import time

from lit_gans.common._compat.lightning import children

_PARENT = "LIT_GANS_PARENT"  # pid of the process that starts others
_CHECK = 1.0  # seconds between two checks of the parent
_GRACE = 3.0  # seconds before a process is killed


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


def end_process() -> None:
    """Ends this process as a failed one, from any thread, even if the main thread is blocked."""
    os._exit(1)  # without flushing what may be a broken pipe


def announce_parent() -> None:
    """Records this process as a parent in the environment, which its children inherit."""
    os.environ[_PARENT] = str(os.getpid())


def follow_parent() -> None:
    """Ends this process once its parent has ended, even if it is blocked.

    Does nothing if the parent did not call `announce_parent`, as under torchrun.
    """
    parent = os.getppid()
    if os.environ.get(_PARENT) != str(parent):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK)
        end_process()

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()
