"""Replaces files and folders atomically and durably.

If the process is killed or the machine loses power, either the old or the new file or folder remains, and is complete.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lit_gans.common.errors import FailedWrite

logger = logging.getLogger(__name__)

_FULL = 2**20  # a disk with less free space, in bytes, counts as full
_UNFINISHED, _REPLACED = ".lit_gans_part", ".lit_gans_old"  # suffixes that no file of a user has
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)  # errors if folders cannot be synchronized


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context manager that raises `FailedWrite` if a file or folder cannot be written during training.

    Possible reasons are a full or a read-only disk.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save hides the reason in a RuntimeError
        raise failed_write(path, error) from error


def failed_write(path: str | Path, error: BaseException) -> FailedWrite:
    """Returns the exception for a file, folder or URL that cannot be written. Its message contains the reason."""
    reason = error.strerror if isinstance(error, OSError) else None
    if reason is None:
        try:
            full = shutil.disk_usage(Path(path).parent).free < _FULL
        except OSError:
            full = False
        reason = os.strerror(errno.ENOSPC) if full else "it was only written in part"
    return FailedWrite(
        f"{path} cannot be written: {reason.rstrip('.')}. Files that were complete before are unchanged: once the path"
        " is writable, training can resume from its last checkpoint."
    )


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[Path]:
    """Context manager that yields a temporary path, at which the caller creates a file or folder to replace `path`.

    The temporary path is in the same folder as `path`. If an error is raised, the temporary file or folder is removed,
    and `path` is not changed.

    Args:
        path: path of the file or folder to replace.
        part: temporary path, for writers that choose a format by the suffix. None uses the path of `unfinished`.
    """
    part = part or unfinished(path)
    remove(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield part
        replace(part, path)
    except BaseException:
        with suppress(OSError):
            remove(part)
        raise


def unfinished(path: Path) -> Path:
    """Returns the temporary path at which a file or folder is written until it is complete."""
    return path.with_name(f"{path.name}{_UNFINISHED}")


def replaced(path: Path) -> Path:
    """Returns the temporary path of a file or folder while it is replaced."""
    return path.with_name(f"{path.name}{_REPLACED}")


def is_finished(path: Path) -> bool:
    """Returns whether a relative path is finished: neither the path nor a parent is being written or replaced."""
    return not any(name.endswith((_UNFINISHED, _REPLACED)) for name in path.parts)


def replace(new: Path, path: Path) -> None:
    """Replaces the file or folder at `path` by `new`, after the contents of `new` have reached the disk.

    At any time, a complete old or new version exists. It is at `path` or, between the two renames that replace a
    folder, at the path that `kept` returns.
    """
    synchronize(new)
    old = replaced(path)
    if path.is_dir() or new.is_dir():
        if path.exists():
            remove(old)
            path.rename(old)
        new.rename(path)
    else:
        new.replace(path)
    _synchronize_entry(path.parent)
    remove(old)


def kept(path: Path) -> Path | None:
    """Returns the path of a complete file or folder, or None if neither a new nor an old version exists.

    This is `path` itself or, if a replacement was interrupted, the path of the old file or folder.
    """
    return next((candidate for candidate in (path, replaced(path)) if candidate.exists()), None)


def set_aside(path: Path) -> None:
    """Renames a file or folder of an earlier run, if it exists, such as `metrics.csv` to `metrics-1.csv`.

    Logs the new name, which has the lowest number that is free.
    """
    if not path.exists():
        return
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1))
    with writing(path):
        new = path.rename(next(name for name in names if not os.path.lexists(name)))
    logger.warning("%s is from an earlier run, and is kept as %s", path, new.name)


def sweep(folder: Path, pattern: str) -> None:
    """Cleans up the temporary files and folders that killed processes left in a folder.

    Unfinished files and folders are removed. An old file or folder gets its original name back if its replacement does
    not exist, and is removed otherwise. Must not be called while another process writes to the folder.

    Args:
        folder: path of the folder.
        pattern: glob pattern of the original names.
    """
    for part in folder.glob(f"{pattern}{_UNFINISHED}"):
        remove(part)
    for old in folder.glob(f"{pattern}{_REPLACED}"):
        path = old.with_name(old.name.removesuffix(_REPLACED))
        if path.exists():
            remove(old)
        else:
            old.rename(path)


def duplicate(path: Path, other: Path) -> None:
    """Gives a complete file or folder a second name, atomically.

    If the file system supports hard links, both names share the same bytes on disk. The files must therefore never be
    changed in place.
    """
    # according to POSIX, a rename does nothing if both names are hard links to the same file
    if other.exists() and path.samefile(other):
        return
    with writing(other), replacing(other) as part:
        if path.is_dir():
            shutil.copytree(path, part, copy_function=_link)
        else:
            _link(path, part)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the file system does not support hard links, or no more of them
        shutil.copyfile(source, target)


def synchronize(path: Path) -> None:
    """Waits until the contents of a file, or of all files in a folder, are on disk."""
    if path.is_dir():
        for entry in path.iterdir():
            synchronize(entry)
        _synchronize_entry(path)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _synchronize_entry(folder: Path) -> None:
    """Waits until the file names in a folder are on disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Removes a file or a folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
