"""No process is left behind: a rank that fails ends the processes that it started, and they follow their parent."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any

_CHECK = 1.0  # seconds between two looks at the parent
_GRACE = 3.0  # seconds that a process has to end by itself


def end_children(launcher: Any) -> None:
    """Ends the processes that Lightning's launcher started: also those that hang, which Lightning leaves alive."""
    processes: list[subprocess.Popen] = list(getattr(launcher, "procs", ()))
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def follow_parent() -> None:
    """Ends this process, whatever it waits for, when the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()
