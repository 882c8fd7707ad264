"""What a measurement depends on besides its settings: hardware, versions and commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import environment
from lit_gans.data.packed.writer import available_cores

_VERSIONS = ("lit-gans", "torchvision", "deepspeed")


def stamp(device: str, nodes: int = 1) -> dict[str, Any]:
    """Returns hardware, versions and commit.

    Args:
        device: `cpu` or `cuda`.
        nodes: number of machines.
    """
    about = environment(torch.device(device))
    about.pop("threads")  # each cell sets its own
    return {
        **about,
        "devices": torch.cuda.device_count() if device == "cuda" else 1,
        "nodes": nodes,
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in _VERSIONS},
        "commit": commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:  # the error of a package that is not installed
        return None


def commit() -> str | None:
    """Returns the commit of the source code, with a mark if files differ from it; None outside of a repository."""
    folder = Path(__file__).parent
    try:
        found = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found} with changes" if changed else found


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
