"""Caches the statistics of real images on disk, so that they are computed only once for all runs."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import distributed

from lit_gans.common.atomic import replacing
from lit_gans.common.identity import digest_of
from lit_gans.common.paths import cache_folder
from lit_gans.common.rank_zero import rank_and_world_size
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.base import FeatureScore

FORMAT_VERSION = 5


def reference_path(extractor: Extractor, **key: Any) -> Path:
    """Returns the path of the cached statistics of real images, in `references/` of the cache folder.

    Args:
        extractor: feature extractor.
        key: JSON-serializable values that the statistics depend on, in addition to the extractor.
    """
    identity = {
        "format": FORMAT_VERSION,
        "torch": torch.__version__,
        "extractor": extractor.name,
        "extractor_sha256": extractor.sha256,
        "extractor_class": f"{type(extractor).__module__}.{type(extractor).__qualname__}",
        "resize": extractor.resize,
        **key,
    }
    name = f"{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()}.safetensors"
    return cache_folder() / "references" / name


def load(path: Path, scores: Mapping[str, FeatureScore]) -> float | None:
    """Loads the states of the real images on rank 0. The states of all other ranks stay empty.

    If the file is damaged, a warning is issued and the file is ignored.

    Args:
        path: path of the file.
        scores: scores by their `FeatureScore.states_key`.

    Returns:
        FID between two halves of the images, NaN if no score fits Gaussians, or None if there is no file.
    """
    rank, world_size = rank_and_world_size()
    tensors = read(path) if rank == 0 else {}
    halves = [tensors.pop("halves").item() if tensors else None]
    for name, tensor in tensors.items():
        owner, _, state = name.rpartition("/")
        score = scores[owner]
        setattr(score, state, [tensor] if state in score.lists else tensor.to(score.device))
    if world_size > 1:
        distributed.broadcast_object_list(halves)
    return halves[0]


def save(path: Path, scores: Mapping[str, FeatureScore], halves: float) -> None:
    """Gathers the states of the real images from all ranks, and saves them on rank 0. See `load` for the arguments."""
    tensors = {"halves": torch.tensor(halves, dtype=torch.float64)}
    for owner, score in scores.items():
        with score.sync_context(dist_sync_fn=score.dist_sync_fn):  # torchmetrics would not use it by itself
            for state, value in score.real_states().items():
                tensor = score.rows(state) if isinstance(value, list) else value
                tensors[f"{owner}/{state}"] = tensor.cpu().contiguous()
    if rank_and_world_size()[0] == 0:
        write(path, tensors)


def write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes tensors and their digest. If the file cannot be written, a warning is issued."""
    try:
        # the name contains the pid, because several runs might write the file at the same time
        with replacing(path, path.with_name(f"{path.name}.{os.getpid()}")) as part:
            save_file(tensors, part, {"sha256": digest_of(dict(sorted(tensors.items())))})
    except (OSError, SafetensorError) as error:
        warnings.warn(f"The statistics of the real images cannot be saved in {path.parent}: {error}", stacklevel=4)


def read(path: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file. If the file does not exist or is damaged, an empty dictionary is returned.

    A warning is issued for a damaged file.
    """
    if not os.path.isfile(path):  # `Path.is_file` would raise an error if the name is too long
        return {}
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            stored = (file.metadata() or {}).get("sha256")
        if stored != digest_of(tensors):
            raise ValueError("the values do not match their digest")
        return tensors
    except (OSError, ValueError, SafetensorError) as error:
        warnings.warn(f"The cached statistics {path} are damaged ({error}) and are computed again.", stacklevel=4)
        return {}
