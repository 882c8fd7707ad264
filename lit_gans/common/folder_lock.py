"""A lock on a folder, which leaves no file behind and ends with the process that holds it."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from lit_gans.common.errors import RefusedInput

_WAIT = 10.0  # seconds: workers of a killed training hold its lock until they notice, within 5 seconds
_STEP = 0.1


class FolderLock:
    """Keeps two trainings from writing to one folder. File systems and platforms without such locks are not locked.

    A folder that this process has locked already, such as the command for its callback, is left to the first lock.
    """

    _locked: ClassVar[set[Path]] = set()  # by this process

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._folder = Path()

    @property
    def held(self) -> bool:
        """Whether this lock keeps others from the folder."""
        return self._folder in self._locked and self._descriptor is not None

    def acquire(self, folder: Path) -> None:
        """Locks a folder, which is created if it does not exist.

        Raises:
            RefusedInput: another process holds the lock.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32" or folder.resolve() in self._locked:
            return
        import fcntl

        self._descriptor = os.open(folder, os.O_RDONLY)
        until = time.monotonic() + _WAIT
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._folder = folder.resolve()
                return self._locked.add(self._folder)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                    return  # not supported here
            if time.monotonic() > until:
                self.release()
                raise RefusedInput(
                    f"{folder} is in use by another training: wait until it has ended, or use another folder"
                    " (hydra.run.dir=FOLDER, or none for a new one)."
                )
            time.sleep(_STEP)

    def release(self) -> None:
        """Releases the lock, if it is held, also for processes that were forked since."""
        if self._descriptor is None or sys.platform == "win32":
            return
        import fcntl

        with suppress(OSError):  # not supported here
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._locked.discard(self._folder)
        self._descriptor = None
