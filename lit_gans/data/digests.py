"""Digests of data, by which a resumed run, packed images and protocols recognize images wherever they lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from lit_gans.common.atomic import replacing
from lit_gans.common.progress import follow

_THREADS = 16  # files are read, not decoded: more threads than cores hide the latency of a network drive


class Fingerprint(NamedTuple):
    """Digest, number and shape (c, h, w) of images, in their order."""

    sha256: str
    num: int
    shape: list[int]


def fingerprint(batches: Iterable[Tensor]) -> Fingerprint:
    """Returns the fingerprint of images (n, c, h, w), or of labels (n,), in batches of any size."""
    digest, num, shape = hashlib.sha256(), 0, []
    for images in batches:
        if not num:
            shape = list(images.shape[1:])
            digest.update(repr(shape).encode())
        num += len(images)
        digest.update(images.cpu().contiguous().numpy().data)
    return Fingerprint(digest.hexdigest(), num, shape)


def digest_of_parts(**parts: Any) -> str:
    """Returns the sha256 of plain values, such as the fingerprints of images and of their labels."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of_tensors(**tensors: Tensor) -> str:
    """Returns the sha256 of named tensors with one row for each image, such as images and labels."""
    parts = {name: [str(tensor.dtype), *fingerprint([tensor])] for name, tensor in tensors.items()}
    return digest_of_parts(**parts)


def remembered(path: Path, key: str, compute: Callable[[], Any]) -> Any:
    """Returns a plain value by its key in a JSON file; computes it on first use, and stores it.

    A file that is damaged counts as none. Where the file cannot be written, the value is computed at each call.
    """
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_bytes()))
    if key not in known:
        known[key] = compute()
        with (
            suppress(OSError),
            replacing(path, path.with_name(f"{path.name}.{os.getpid()}.part")) as part,  # processes may write at once
        ):
            part.write_text(json.dumps(known), encoding="utf-8")
    return known[key]


def digest_of_files(paths: Sequence[Path], cache: Path) -> str:
    """Returns the sha256 of the contents and the extensions of files, in this order, whatever their names and folders.

    Contents are read on first use, and again if a file may have changed, which its inode, size and times tell. One of
    them is the time of the last change of status (ctime), which the system sets when a file is written, renamed or
    given another time of modification. So files are read again if others replaced them with the same names, sizes and
    times of modification (`cp -p`, `rsync -t`). Only file systems without such a time cannot tell.

    Args:
        paths: paths of the files; those that cannot be read count as such.
        cache: folder in which the digest is stored by the status of all files.
    """
    status = hashlib.sha256()
    for path in paths:
        status.update(repr(_status(path)).encode())
    known = cache / "digests" / f"{status.hexdigest()}.json"
    return str(remembered(known, "sha256", lambda: _digest_of_contents(paths)))


def _status(path: Path) -> tuple[Any, ...]:
    try:
        found = path.stat()  # of what a link points to
    except OSError:
        return (path.suffix.lower(), None)
    times = found.st_mtime_ns, found.st_ctime_ns
    return path.suffix.lower(), found.st_ino, found.st_size, *times


def _digest_of_contents(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as threads:
        contents = threads.map(_digest_of_content, paths)
        for content in follow("reading the files", contents, len(paths), size=lambda _: 1):
            digest.update(content)
    return digest.hexdigest()


def _digest_of_content(path: Path) -> bytes:
    digest = hashlib.sha256(os.fsencode(path.suffix.lower()))  # which decides how the file is read
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError:
        digest.update(b"unreadable")
    return digest.digest()
