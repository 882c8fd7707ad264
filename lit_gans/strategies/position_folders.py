"""Locks on the files of rank positions, so that folders left by killed processes are recognized and removed."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_SETTLED = 60.0  # seconds after which a folder's files have their locks


def hold(file: IO[bytes]) -> None:
    """Locks an open file until its process ends, or its descriptor and all copies of it are closed."""
    if sys.platform == "win32":
        return
    import fcntl

    with suppress(OSError):  # not supported here
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def sweep(parent: Path, pattern: str) -> None:
    """Removes matching folders whose files no process holds, as after a SIGKILL; on Windows, none."""
    if sys.platform == "win32":
        return
    for folder in parent.glob(pattern):
        with suppress(OSError):  # of another user, or removed by another rank
            settled = time.time() - folder.stat().st_mtime > _SETTLED
            if settled and not any(map(_is_held, folder.iterdir())):
                shutil.rmtree(folder, ignore_errors=True)


def _is_held(path: Path) -> bool:
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or locks are not supported here
            return True
    return False
