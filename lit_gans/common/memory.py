"""Tells how much main memory a process can still use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def free_memory(root: Path = Path("/")) -> float:
    """Returns the main memory that is free or can be freed, in bytes. Returns infinity if it is unknown."""
    information = root / "proc/meminfo"
    if not information.is_file():
        return float("inf")
    lines = dict(line.split(":", 1) for line in information.read_text(encoding="utf-8", errors="replace").splitlines())
    return min(int(lines["MemAvailable"].split()[0]) * 1024, _free_of_limit(root))


def _free_of_limit(root: Path) -> float:
    """Returns what is left of the memory limit of the container or the SLURM job, or infinity without a limit.

    The limit is that of a control group (version 2) of this process. Memory of cached files can be freed.
    """
    groups, least = root / "sys/fs/cgroup", float("inf")
    with suppress(OSError, ValueError, KeyError):
        paths = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        group = groups / next((path.removeprefix("0::/") for path in paths if path.startswith("0::/")), "")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(groups):
                break
            limit = folder / "memory.max"
            if limit.is_file() and limit.read_text(encoding="utf-8").strip() != "max":
                used = int((folder / "memory.current").read_text(encoding="utf-8"))
                statistics = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
                cached = int(dict(line.split() for line in statistics)["inactive_file"])
                least = min(least, int(limit.read_text(encoding="utf-8")) - used + cached)
    return least
