"""Files at addresses of fsspec, such as `s3://bucket/run`: copied from and to local folders.

An object appears whole, once all of it has arrived. Nothing there is renamed, locked or synchronized to a disk.
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

_NUMBERED = re.compile(r"checkpoints/(step|best)-\d+\.ckpt(/|$)")  # of a run, which needs only the last and the best


def is_address(path: str | Path) -> bool:
    """Returns whether a path is an address of fsspec rather than a local path, or of the Hugging Face Hub."""
    return isinstance(path, str) and "://" in path and not path.startswith(HUB)


class Remote:
    """A file or folder at an address.

    Args:
        address: such as `s3://bucket/run`, `gs://bucket/run` or `file:///folder`.

    Raises:
        RefusedInput: the package of its file system is not installed, or there is no such file system.
    """

    def __init__(self, address: str) -> None:
        import fsspec  # which Lightning requires

        self.address = address.rstrip("/")
        with refusing(f"{address} cannot be used"):
            self._fs, self._root = fsspec.core.url_to_fs(self.address)

    def files(self) -> list[str]:
        """Returns the relative names of the files in the folder; `""` for a file, nothing where nothing exists.

        Raises:
            RefusedInput: the file system cannot be reached.
        """
        with refusing(f"{self.address} cannot be read"):
            self._fs.invalidate_cache()
            return sorted(name.removeprefix(self._root).lstrip("/") for name in self._fs.find(self._root))

    def write(self, name: str, content: BufferedIOBase) -> None:
        """Writes a file of the folder; it appears whole, or not at all if an error is raised."""
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.transaction, self._fs.open(path, "wb") as target:
            shutil.copyfileobj(content, target, 2**24)

    def remove(self, name: str = "") -> None:
        """Removes a file or folder of the folder, or all of it, if it exists."""
        path = f"{self._root}/{name}".rstrip("/")
        self._fs.invalidate_cache()
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def download(self, path: Path) -> Path:
        """Downloads the file, or the folder without its numbered checkpoints, to a local path, and returns it.

        Raises:
            RefusedInput: nothing exists at the address, or it cannot be read.
        """
        names = self.files()
        if not names:
            raise RefusedInput(f"there is nothing at {self.address}.")
        with refusing(f"{self.address} cannot be read"):
            for name in names:
                if not _NUMBERED.match(name):
                    target = path / name if name else path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self._fs.get_file(f"{self._root}/{name}".rstrip("/"), str(target))
        return path


def downloaded_here(address: str) -> Path:
    """Downloads what is at an address to a temporary folder, which lasts as long as the process.

    Raises:
        RefusedInput: nothing exists at the address, or it cannot be read.
    """
    folder = Path(mkdtemp(prefix="lit_gans_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Remote(address).download(folder / Path(address).name)


@contextmanager
def downloaded_to_node(address: str, strategy: ParallelStrategy) -> Iterator[Path]:
    """Yields the local path of what is at an address, downloaded once on each node; every rank must call it."""
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
