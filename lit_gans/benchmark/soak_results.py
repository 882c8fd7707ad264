"""Results of trainings of `lit-gans bench soak`: what a resumed one must have in common with an uninterrupted one."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from lit_gans.checkpoints.newest import checkpoints_of, verified_iteration
from lit_gans.common.errors import RefusedInput

_OF_TIME = ("throughput/", "utilization/")
_SAME = ("global_step", "epoch", "state_dict", "optimizer_states", "generator_ema", "lr_schedulers")


def resumes_at(run: Path) -> int | None:
    """Returns the iteration at which `resume=auto` must continue: 0 without checkpoints, None if none is good."""
    found: dict[str, int] = {}
    paths = checkpoints_of(run)
    for path in paths:
        try:
            found[path.name] = verified_iteration(path)
        except RefusedInput:
            continue
    if not paths:
        return 0
    last = "last.ckpt" if (run / "checkpoints/last.ckpt").exists() else "last.ckpt.old"
    return found.get(last, max(found.values(), default=None))


def results(run: Path) -> dict[str, Any]:
    """Returns all that a resumed training must have in common with an uninterrupted one, by name."""
    found: dict[str, Any] = {}
    for name in ("last", "best"):
        found |= {f"{name} {key}": value for key, value in _content(run / f"checkpoints/{name}.ckpt").items()}
    grids = [*run.glob("samples/*.png"), *run.glob("samples/*.gif"), run / "protocol.json"]
    found |= {path.name: path.read_bytes() for path in sorted(grids)}
    return found | {"checkpoints": sorted(path.name for path in run.glob("checkpoints/*"))}


def _content(path: Path) -> dict[str, Any]:
    if path.is_dir():
        files = sorted([*path.rglob("*.pt"), *path.rglob("*.safetensors")])
        return {f"{file.relative_to(path)}/{key}": v for file in files for key, v in _content(file).items()}
    if path.suffix == ".safetensors":
        return {**load_file(path)}
    found = torch.load(path, weights_only=False, map_location="cpu")  # this process has made it
    return {key: found[key] for key in _SAME if key in found} if "global_step" in found else found


def rows(run: Path) -> dict[int, dict[str, str]]:
    """Returns the logged values of each iteration, without those that depend on the time."""
    with (run / "metrics.csv").open(newline="") as file:
        return {
            int(row["step"]): {name: value for name, value in row.items() if value and not name.startswith(_OF_TIME)}
            for row in csv.DictReader(file)
        }


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """Returns the first thing in which two results differ, or None."""
    if ours.keys() != theirs.keys():
        return f"has {sorted(ours.keys() ^ theirs.keys())}, or lacks it"
    return next((f"differs in {name}" for name, value in theirs.items() if not _same(ours[name], value)), None)


def _same(ours: Any, theirs: Any) -> bool:
    """Returns whether two nested values are bitwise the same."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    try:
        return bool(ours == theirs) or _same(vars(ours), vars(theirs))
    except TypeError:  # different, and without attributes
        return False
