"""Digests that identify images by their contents, independent of their location.

Resumed runs, packed images and measurement protocols compare these digests.
"""

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
from lit_gans.data.archives import archive_of, open_file

_THREADS = 16  # files are only read, not decoded, so more threads than cores hide the latency of network drives


class Fingerprint(NamedTuple):
    """Digest of a sequence of images, with the number of images and the shape (c, h, w) of each image."""

    sha256: str
    num: int
    shape: list[int]


def fingerprint(batches: Iterable[Tensor]) -> Fingerprint:
    """Returns the fingerprint of images (n, c, h, w) or labels (n,). The batch size has no effect."""
    digest, num, shape = hashlib.sha256(), 0, []
    for images in batches:
        if not num:
            shape = list(images.shape[1:])
            digest.update(repr(shape).encode())
        num += len(images)
        digest.update(images.cpu().contiguous().numpy().data)
    return Fingerprint(digest.hexdigest(), num, shape)


def digest_of_parts(**parts: Any) -> str:
    """Returns the SHA-256 digest of plain values, such as the fingerprints of images and of their labels."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digest_of_tensors(**tensors: Tensor) -> str:
    """Returns the SHA-256 digest of named tensors with one row per image, such as images and labels."""
    parts = {name: [str(tensor.dtype), *fingerprint([tensor])] for name, tensor in tensors.items()}
    return digest_of_parts(**parts)


def remembered(path: Path, key: str, compute: Callable[[], Any]) -> Any:
    """Returns the plain value that a JSON file stores under `key`.

    If the key is missing, computes and stores the value.

    A damaged file is treated like a missing file. If the file cannot be written, the value is computed at every call.
    """
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_bytes()))
    if key not in known:
        known[key] = compute()
        with (
            suppress(OSError),
            replacing(path, path.with_name(f"{path.name}.{os.getpid()}.part")) as part,  # for concurrent processes
        ):
            part.write_text(json.dumps(known), encoding="utf-8")
    return known[key]


def digest_of_files(paths: Sequence[Path], cache: Path) -> str:
    """Returns the SHA-256 digest of the contents and extensions of files, in the given order.

    The names and folders of the files do not affect the digest. The contents are read on first use, and again whenever
    a file might have changed according to its inode, size and times. The times include the status change time (ctime),
    which the operating system sets whenever a file is written or renamed or its modification time changes. Files are
    therefore read again even if they were replaced by files with the same names, sizes and modification times (`cp -p`,
    `rsync -t`). On file systems without a ctime, such a replacement is not detected.

    Args:
        paths: paths of the files. A file that cannot be read contributes a fixed value to the digest.
        cache: folder in which the digest is stored, under a key that depends on the status of all files.
    """
    status = hashlib.sha256()
    for path in paths:
        status.update(repr(_status(path)).encode())
    known = cache / "digests" / f"{status.hexdigest()}.json"
    return str(remembered(known, "sha256", lambda: _digest_of_contents(paths)))


def _status(path: Path) -> tuple[Any, ...]:
    name: tuple[str, ...] = ()
    try:
        archive = None if path.exists() else archive_of(path)
        if archive is not None:
            name, path = (path.relative_to(archive).as_posix(),), archive
        status = path.stat()  # follows symbolic links
    except OSError:
        return (path.suffix.lower(), None)
    times = status.st_mtime_ns, status.st_ctime_ns
    return path.suffix.lower(), status.st_ino, status.st_size, *times, *name


def _digest_of_contents(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as threads:
        contents = threads.map(_digest_of_content, paths)
        for content in follow("reading the files", contents, len(paths), size=lambda _: 1):
            digest.update(content)
    return digest.hexdigest()


def _digest_of_content(path: Path) -> bytes:
    digest = hashlib.sha256(os.fsencode(path.suffix.lower()))  # the extension determines the decoder
    try:
        with open_file(path) as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError:
        digest.update(b"unreadable")
    return digest.digest()
