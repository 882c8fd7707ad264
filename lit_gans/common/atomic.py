"""Atomic and durable replacement of files and folders: a process that is killed, or a machine that loses power, leaves
either the old or the new one, complete.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lit_gans.common.errors import FailedWrite

_FULL = 2**20  # bytes: a disk with less is full
_UNFINISHED, _REPLACED = ".part", ".old"
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)  # file systems that cannot synchronize folders


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises `FailedWrite` if a file or folder of a training cannot be written, on a full or read-only disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save hides the reason in a RuntimeError
        raise failed_write(path, error) from error


def failed_write(path: str | Path, error: BaseException) -> FailedWrite:
    """Returns the error about a file, folder or address that cannot be written, with its reason."""
    reason = error.strerror if isinstance(error, OSError) else None
    if reason is None:
        try:
            full = shutil.disk_usage(Path(path).parent).free < _FULL
        except OSError:
            full = False
        reason = os.strerror(errno.ENOSPC) if full else "not all of it was written"
    return FailedWrite(
        f"{path} cannot be written: {reason.rstrip('.')}. What was complete before still is: once it can be written,"
        " the training can go on from its last checkpoint."
    )


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[Path]:
    """Yields a temporary path in the folder of `path`, which must exist afterwards and then replaces `path`.

    If an error is raised, the temporary file or folder is removed and `path` stays as it was.

    Args:
        path: path of the file or folder.
        part: temporary path, for writers that choose a format by the suffix; None: that of `unfinished`.
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
    """Returns the temporary path that a file or folder has until it is complete."""
    return path.with_name(f"{path.name}{_UNFINISHED}")


def is_finished(path: Path) -> bool:
    """Returns whether neither a relative path nor a folder in it is one that is being written or replaced."""
    return not any(name.endswith((_UNFINISHED, _REPLACED)) for name in path.parts)


def replace(new: Path, path: Path) -> None:
    """Replaces a file or folder, after its content has reached the disk.

    At any time, the old or the new one is complete: at `path` or, between two renames, where `kept` finds it.
    """
    synchronize(new)
    old = path.with_name(f"{path.name}{_REPLACED}")
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
    """Returns the path of a complete file or folder: `path` or, after an interrupted replacement, the old one."""
    return next((place for place in (path, path.with_name(f"{path.name}{_REPLACED}")) if place.exists()), None)


def sweep(folder: Path, pattern: str) -> None:
    """Removes what killed processes left beside the files or folders that match a pattern.

    Unfinished ones are removed. An old one gets its name back if the new one never arrived, and is removed otherwise.
    Must not be called while another process writes to the folder.
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
    """Gives a complete file or folder a second name, atomically. Both share their bytes on disk where the file system
    has hard links: neither may be changed in place.
    """
    if other.exists() and path.samefile(other):  # renaming one name of a file to another does nothing, says POSIX
        return
    with writing(other), replacing(other) as part:
        if path.is_dir():
            shutil.copytree(path, part, copy_function=_link)
        else:
            _link(path, part)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no hard links here, or too many
        shutil.copyfile(source, target)


def synchronize(path: Path) -> None:
    """Returns once the content of a file, or of a folder with its files, is on disk."""
    if path.is_dir():
        for entry in path.iterdir():
            synchronize(entry)
        _synchronize_entry(path)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _synchronize_entry(folder: Path) -> None:
    """Returns once the names in a folder are on disk."""
    if os.name == "nt":  # cannot open folders
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
