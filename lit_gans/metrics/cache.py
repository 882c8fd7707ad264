"""Cache of the statistics of real images on disk, so that they are computed only once for all runs."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import distributed

from lit_gans.common.cache_folder import cache_folder
from lit_gans.metrics.statistics import Summary

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Reference:
    """Statistics of the real images.

    Args:
        summary: statistics of all images.
        halves: FID between two halves of the images, NaN if no score needs Gaussians.
    """

    summary: Summary
    halves: float


def reference_path(key: dict[str, Any]) -> Path:
    """Returns the path of the statistics identified by `key` (plain values), in `references/` of the cache folder."""
    text = json.dumps({"format": FORMAT_VERSION, **key}, sort_keys=True)
    name = f"{hashlib.sha256(text.encode()).hexdigest()}.safetensors"
    return cache_folder() / "references" / name


def cached(path: Path | None, make: Callable[[], Reference], with_features: bool) -> Reference:
    """Reads the statistics from a file or, if it does not exist, computes them with `make` and writes the file.

    Rank 0 decides for all ranks, since either all ranks or none must call `make`. A damaged file is replaced with a
    warning.

    Args:
        path: path of the file; None neither reads nor writes.
        make: function that computes the statistics.
        with_features: whether the features are required; a file without them is replaced.
    """
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    first = not several or distributed.get_rank() == 0
    found = [_read(path, with_features) if path is not None and first else None]
    if several:
        distributed.broadcast_object_list(found)
    if found[0] is not None:
        return found[0]
    reference = make()
    if path is not None and first:
        _write(path, reference)
    return reference


def _read(path: Path, with_features: bool) -> Reference | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            header = json.loads((file.metadata() or {})["lit_gans"])
        if _digest(tensors) != header["sha256"]:
            raise ValueError("the values do not match their digest")
        summary = Summary(header["num"], tensors["mean"], tensors["covariance"], tensors.get("features"))
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        warnings.warn(f"The cached statistics {path} are damaged ({error}) and are computed again.", stacklevel=3)
        return None
    return None if with_features and summary.features is None else Reference(summary, header["halves"])


def _write(path: Path, reference: Reference) -> None:
    summary = reference.summary
    kept = {"mean": summary.mean, "covariance": summary.covariance, "features": summary.features}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in kept.items() if tensor is not None}
    header = {"num": summary.num, "halves": reference.halves, "sha256": _digest(tensors)}
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, beside, {"lit_gans": json.dumps(header)})
        beside.replace(path)  # atomic, even if two runs write concurrently
    except (OSError, SafetensorError) as error:
        warnings.warn(f"The statistics of the real images cannot be stored in {path.parent}: {error}", stacklevel=3)


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
