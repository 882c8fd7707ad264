"""Folder lock that needs no lock file, and that is released when the process that holds it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lit_gans.common.errors import RefusedInput

# maximum time to wait for a lock, in seconds; the data loader workers of a killed run hold the run's lock until they
# exit, which takes up to 5 seconds
_WAIT = 10.0
_STEP = 0.1
_locked: set[Path] = set()  # folders that this process has locked


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context manager that holds an exclusive lock on a folder, and creates the folder if it does not exist.

    Nested calls in the same process have no effect, for example if a command and its callback lock the same folder. On
    Windows, and on file systems without such locks, the folder is not locked.

    Raises:
        RefusedInput: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    resolved = folder.resolve()
    if sys.platform == "win32" or resolved in _locked:
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _wait_for(descriptor, folder)
        _locked.add(resolved)
        yield
    finally:
        _locked.discard(resolved)
        with suppress(OSError):  # the file system does not support locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also releases the lock in forked processes, which inherited it
        os.close(descriptor)


def _wait_for(descriptor: int, folder: Path) -> None:
    import fcntl

    until = time.monotonic() + _WAIT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                return None  # the file system does not support locks
        if time.monotonic() > until:
            raise RefusedInput(
                f"{folder} is in use by another training: wait until that training has ended, or use another folder"
                " (hydra.run.dir=FOLDER; without this setting, a new folder is created)."
            )
        time.sleep(_STEP)
