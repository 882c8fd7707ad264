"""Memory that packing needs, measured in a process of its own: `python -m lit_gans.benchmark.packing_memory`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

from lit_gans.data.images import Frame, open_picture
from lit_gans.data.packed.format import Source
from lit_gans.data.packed.writer import pack

_ROLLUP = "/proc/{pid}/smaps_rollup"


def memory_of_packing(folder: Path, packed: Path, image_size: int) -> int | None:
    """Returns by how many bytes a process that packs the JPEGs in a folder grows; None without Linux's /proc."""
    if not Path(_ROLLUP.format(pid="self")).exists():
        return None
    command = [sys.executable, "-m", "lit_gans.benchmark.packing_memory", str(folder), str(packed), str(image_size)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def growth_while_packing(source: Source, path: Path, image_size: int, num_workers: int | None = None) -> int:
    """Packs a source and returns by how many bytes this process, with those that it starts, grew at most.

    Looks after every chunk, while the workers decode the next ones.
    """
    before = held_bytes(os.getpid())
    looks = [before]

    def look() -> None:
        looks.append(held_bytes(os.getpid()))

    about = {"source": "bench", "identity": {}}
    pack(path, source, Frame(image_size, 3), "raise", about, num_workers, on_chunk=look)
    return max(looks) - before


def held_bytes(pid: int) -> int:
    """Returns the bytes of a process and all processes below it, shared pages counted once; 0 for an ended process."""
    try:
        lines = Path(_ROLLUP.format(pid=pid)).read_text().splitlines()
        own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration):
        return 0
    return own + sum(held_bytes(int(child)) for child in children)


class _Jpegs(Source):
    """Files without the datamodule around them, which would import Lightning."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        return open_picture(self.paths[index], self.name(index), notes)


if __name__ == "__main__":
    jpegs = _Jpegs(sorted(Path(sys.argv[1]).rglob("*.jpg")))
    print(growth_while_packing(jpegs, Path(sys.argv[2]), int(sys.argv[3])))
