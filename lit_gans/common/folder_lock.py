"""A lock on a folder, which leaves no file behind and ends with the process that holds it."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lit_gans.common.errors import RefusedInput

_WAIT = 10.0  # seconds: workers of a killed training hold its lock until they notice, within 5 seconds
_STEP = 0.1
_locked: set[Path] = set()  # by this process


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes that lock a folder from it; creates it if it does not exist.

    A folder that this process has locked already, such as the command for its callback, is left to the first lock.
    Windows and file systems without such locks do not lock.

    Raises:
        RefusedInput: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.resolve()
    if sys.platform == "win32" or place in _locked:
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _wait_for(descriptor, folder)
        _locked.add(place)
        yield
    finally:
        _locked.discard(place)
        with suppress(OSError):  # not supported here
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for processes that were forked since
        os.close(descriptor)


def _wait_for(descriptor: int, folder: Path) -> None:
    import fcntl

    until = time.monotonic() + _WAIT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                return None  # not supported here
        if time.monotonic() > until:
            raise RefusedInput(
                f"{folder} is in use by another training: wait until it has ended, or use another folder"
                " (hydra.run.dir=FOLDER, or none for a new one)."
            )
        time.sleep(_STEP)
