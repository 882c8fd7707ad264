"""Uploads and downloads files at fsspec URLs, such as `s3://bucket/run`.

An object becomes visible only when it has been uploaded completely. Remote files are never renamed, locked or
synchronized to a disk.
"""

from __future__ import annotations

import atexit
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from lit_gans.checkpoints.exported import HUB
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.lightning import ParallelStrategy

# checkpoints of a run that are not downloaded, because only the last and the best checkpoint are needed
NUMBERED = re.compile(r"checkpoints/(step|best)-\d+\.ckpt(/|$)")


def is_address(path: str | Path) -> bool:
    """Returns whether a path is an fsspec URL, and not a local path or a repository of the Hugging Face Hub."""
    return isinstance(path, str) and "://" in path and not path.startswith(HUB)


def is_shortened_address(path: str | Path) -> bool:
    """Returns whether a path is a URL, or a URL whose slashes `Path` or Lightning has shortened, such as s3:/bucket."""
    return is_address(path) or re.match("[a-z][a-z0-9+.-]+:/", str(path)) is not None


class Remote:
    """File or folder at a URL.

    Args:
        address: URL, such as `s3://bucket/run`, `gs://bucket/run` or `file:///folder`.

    Raises:
        RefusedInput: the package for the file system is not installed, or the file system is unknown.
    """

    def __init__(self, address: str) -> None:
        import fsspec  # always installed, because Lightning requires it

        self.address = address.rstrip("/")
        with refusing(f"{address} cannot be used"):
            self._fs, self._root = fsspec.core.url_to_fs(self.address)

    def files(self) -> list[str]:
        """Returns the names of all files, relative to the URL.

        If the URL is a file, the only name is `""`. If nothing exists at the URL, the list is empty.

        Raises:
            RefusedInput: the file system cannot be reached.
        """
        with refusing(f"{self.address} cannot be read"):
            self._fs.invalidate_cache()
            return sorted(name.removeprefix(self._root).lstrip("/") for name in self._fs.find(self._root))

    def write(self, name: str, content: BufferedIOBase) -> None:
        """Writes a file in the folder. If an error is raised, no part of the file becomes visible."""
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.transaction, self._fs.open(path, "wb") as target:
            shutil.copyfileobj(content, target, 2**24)

    def remove(self, name: str = "") -> None:
        """Removes a file or subfolder, or everything at the URL if `name` is empty. Missing files are ignored."""
        path = f"{self._root}/{name}".rstrip("/")
        self._fs.invalidate_cache()
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def download(self, path: Path) -> Path:
        """Downloads the file or folder to a local path, and returns that path. Numbered checkpoints are skipped.

        Raises:
            RefusedInput: nothing exists at the URL, or it cannot be read.
        """
        names = self.files()
        if not names:
            raise RefusedInput(f"there is no file or folder at {self.address}.")
        with refusing(f"{self.address} cannot be read"):
            for name in names:
                if not NUMBERED.match(name):
                    target = path / name if name else path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self._fs.get_file(f"{self._root}/{name}".rstrip("/"), str(target))
        return path


def downloaded_here(address: str) -> Path:
    """Downloads the file or folder at a URL to a temporary folder, which is removed when the process exits.

    Raises:
        RefusedInput: nothing exists at the URL, or it cannot be read.
    """
    folder = Path(mkdtemp(prefix="lit_gans_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Remote(address).download(folder / Path(address).name)


@contextmanager
def downloaded_to_node(address: str, strategy: ParallelStrategy) -> Iterator[Path]:
    """Downloads the contents of a URL once per node, and yields their local path. All ranks must call this function."""
    folder = Path(gettempdir()) / f"lit_gans_{strategy.broadcast(uuid.uuid4().hex)}"
    path = folder / Path(address).name
    try:
        if strategy.local_rank == 0:
            Remote(address).download(path)
        strategy.barrier()
        yield path
        strategy.barrier()
    finally:
        if strategy.local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
