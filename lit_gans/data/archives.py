"""Reads files in zip and tar archives without unpacking them.

A file in an archive has a path like any other file: the path of the archive, followed by the name in the archive, such
as `data.zip/00000/img00000000.png`.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from lit_gans.common.errors import RefusedInput

_ZIP = (b"PK\3\4", b"PK\5\6")  # first bytes of a zip archive, and of an empty zip archive
# RuntimeError if a password is missing, ValueError if a name is not Unicode
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
_BLOCK = 512  # size of a tar header in bytes; a block of zeros ends the archive
_MAX_LINKS = 40  # maximum number of links in a path, as on Linux
_URL = re.compile(r"[a-z0-9+]{2,}:/")  # `Path` removes one of two slashes
_AGAIN = "copy or download it again"


class _Zip:
    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:  # the latter for wrong single bytes
            raise RefusedInput(f"{path}: the zip archive is cut off or damaged: {_AGAIN}.") from error
        self._members = {_checked(each.filename, path): each for each in self._zip.infolist() if not each.is_dir()}

    def names(self) -> Iterable[str]:
        return self._members

    def read(self, name: str) -> bytes:
        member = self._members[name]
        try:
            return self._zip.read(member)
        except _UNREADABLE as error:
            raise OSError(f"{error}: the zip archive is damaged, encrypted or of an unknown compression") from error


class _Span(NamedTuple):
    """Position of a file's content in a tar archive.

    Args:
        start: position of the content in the archive, in bytes.
        size: size of the file, in bytes.
        parts: offset and size of each part of a file that was stored without its holes (`tar --sparse`), otherwise
            None.
    """

    start: int
    size: int
    parts: list[tuple[int, int]] | None


class _Tar:
    """Index of a tar archive: the position and size of each file. Every read opens the archive anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spans: dict[str, _Span] = {}
        links: dict[str, str] = {}
        try:
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    name = _checked(member.name, path)
                    if member.isreg():
                        parts: Any = member.sparse  # typeshed declares it as bytes
                        self._spans[name] = _Span(member.offset_data, member.size, parts)
                    elif member.issym() or member.islnk():
                        folder = posixpath.dirname(name) if member.issym() else ""
                        links[name] = _joined(folder, member.linkname)
                end = tar.offset
        except tarfile.TarError as error:
            raise RefusedInput(f"{path}: {_reason(path)}.") from error
        with path.open("rb") as file:
            file.seek(end)
            if file.read(_BLOCK) != bytes(_BLOCK):  # tarfile ends without an error if a header is missing
                raise RefusedInput(f"{path}: the tar archive is cut off or damaged: {_AGAIN}.")
        self._targets = _targets([*self._spans], links) if links else {}

    def names(self) -> Iterable[str]:
        return {**self._spans, **self._targets}

    def read(self, name: str) -> bytes:
        start, size, parts = self._spans[self._targets.get(name, name)]
        with self.path.open("rb") as file:
            file.seek(start)
            if parts is None:
                return file.read(size)
            content = bytearray(size)
            for offset, length in parts:
                content[offset : offset + length] = file.read(length)
        return bytes(content)


def _joined(folder: str, *names: str) -> str:
    """Returns a normalized path in an archive. The path of the top folder is an empty string."""
    path = posixpath.normpath(posixpath.join(folder, *names))
    return "" if path == "." else path


def _targets(files: list[str], links: dict[str, str]) -> dict[str, str]:
    """Follows the links in an archive, to other links and to folders, as `os.walk` follows the links of a folder.

    A link to a folder that contains the link is left out, because it would cause an endless loop.

    Args:
        files: names of the files.
        links: target of each link.

    Returns:
        The file to which each name leads. Names of broken links lead to a name that is no file.
    """
    entries: dict[str, set[str]] = {}  # files, links and folders in each folder
    for name in (*files, *links):
        while name:
            folder = posixpath.dirname(name)
            entries.setdefault(folder, set()).add(name)
            name = folder
    targets = {}
    folders = [("", "", frozenset([""]))]  # name of a folder, its target, and the targets of the folder and its parents
    for name, folder, above in folders:
        for entry in entries[folder]:
            path, target = _joined(name, posixpath.basename(entry)), _followed(entry, links)
            if target not in entries:
                targets[path] = target
            elif target not in above:
                folders.append((path, target, above | {target}))
    return targets


def _followed(path: str, links: dict[str, str]) -> str:
    """Returns the path after following all links in it. For a loop of links, returns the path of a link."""
    for _ in range(_MAX_LINKS):
        parts = path.split("/")
        heads = ("/".join(parts[:num]) for num in range(1, len(parts) + 1))
        link = next((head for head in heads if head in links), None)
        if link is None:
            break
        path = _joined(links[link], path[len(link) + 1 :])
    return path


def _reason(path: Path) -> str:
    if tarfile.is_tarfile(path) and not _is_plain_tar(path):
        return "a compressed tar archive cannot be read at any position: decompress it, for example with gunzip"
    return f"the tar archive is cut off or damaged: {_AGAIN}"


def _checked(name: str, path: Path) -> str:
    """Returns the normalized name of a file in an archive, such as `a/b.png` for `./a/b.png`.

    Raises:
        RefusedInput: the name leads out of the archive.
    """
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/"):
        raise RefusedInput(f"{path} contains the name {name!r}, which leads out of the archive: pack it again.")
    return "/".join(parts)


def is_zip(path: Path) -> bool:
    """Returns whether a file begins like a zip archive, which may be damaged."""
    with path.open("rb") as file:
        return file.read(4) in _ZIP


def _is_plain_tar(path: Path) -> bool:
    try:
        tarfile.open(path, "r:").close()
    except tarfile.TarError:
        return False
    return True


def is_tar(path: Path) -> bool:
    """Returns whether a file is a tar archive, which may be damaged or compressed."""
    return os.path.isfile(path) and (path.suffix.lower() == ".tar" or tarfile.is_tarfile(path))


def is_archive(path: Path) -> bool:
    """Returns whether a file is a zip or tar archive, which may be damaged."""
    return os.path.isfile(path) and (is_zip(path) or is_tar(path))


def archive_of(path: Path) -> Path | None:
    """Returns the file that a path leads into, which should be an archive, or None if all parents are folders."""
    return next((parent for parent in path.parents if os.path.isfile(parent)), None)


def files_in(archive: Path) -> list[Path]:
    """Returns the paths of all files in an archive.

    Raises:
        RefusedInput: the archive is damaged, compressed as a whole, or contains a name that leads out of it.
    """
    return [archive / name for name in _opened(archive).names()]


def top_of(archive: Path) -> Path:
    """Returns the folder of an archive that contains all of its files, such as `photos.zip/photos`, or the archive."""
    names = [PurePosixPath(name).parts for name in _opened(archive).names()]
    tops = {parts[0] if len(parts) > 1 else "" for parts in names if parts[0] != "__MACOSX"}
    return archive / tops.pop() if len(tops) == 1 else archive


def open_file(path: Path) -> io.BufferedReader | io.BytesIO:
    """Opens a file for reading, which may be in an archive.

    Raises:
        OSError: there is no such file, or it cannot be opened.
    """
    try:
        return path.open("rb")
    except (NotADirectoryError, FileNotFoundError):  # the latter on Windows
        archive = archive_of(path)
        if archive is None:
            raise
        try:
            return io.BytesIO(_opened(archive).read(path.relative_to(archive).as_posix()))
        except KeyError as error:
            raise FileNotFoundError(f"{archive} contains no {path.relative_to(archive).as_posix()}") from error


def is_file(path: Path) -> bool:
    """Returns whether a path is a regular file, or leads into an archive."""
    return os.path.isfile(path) or archive_of(path) is not None


def refuse_missing(path: Path) -> NoReturn:
    """Raises `RefusedInput` because there is neither a folder nor an archive at a path."""
    if _URL.match(str(path)):
        address = str(path).replace(":/", "://", 1)
        raise RefusedInput(
            f"{address} is a URL: folders and archives are read from this machine. Copy them here, or write a stream"
            " with lit-gans pack stream=FOLDER, and read it with data=streaming."
        )
    if set("{*?") & set(path.name):
        raise RefusedInput(f"{path}: there is no such file; several shards are given by their folder.")
    if os.path.isfile(path):
        what = "is neither a folder nor a zip or tar archive" if path.stat().st_size else "is an empty file"
        raise RefusedInput(f"{path} {what}.")
    if path.suffix in (".zip", ".tar"):
        raise RefusedInput(f"{path}: there is no such file.")
    raise RefusedInput(f"{path}: there is no such folder; give one that contains images.")


def _opened(path: Path) -> _Zip | _Tar:
    status = path.stat()
    return _opened_once(path, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns), os.getpid())


@lru_cache(4096)
def _opened_once(path: Path, status: tuple[int, ...], process: int) -> _Zip | _Tar:
    """Opens an archive once per process, because forked processes must not share the position in an open file."""
    return _Zip(path) if is_zip(path) else _indexed(path, status)


@lru_cache(4096)
def _indexed(path: Path, status: tuple[int, ...]) -> _Tar:
    """Indexes a tar archive once. Forked processes inherit the index, which contains no open file."""
    return _Tar(path)
