"""Sharded checkpoints: a folder with each rank's shards of the tensors, and `rest.pt` with everything else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from lit_gans.common.errors import RefusedInput

REST = "rest.pt"


def read_sharded(folder: Path) -> dict[str, Any]:
    """Reads a sharded checkpoint with full tensors on the CPU; DeepSpeed's without optimizer states.

    Raises:
        RefusedInput: the folder is not a sharded checkpoint.
    """
    rest = read_rest(folder)
    if "deepspeed" in rest:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        names = rest["deepspeed"]["networks"]
        states = {name: get_fp32_state_dict_from_zero_checkpoint(str(folder), name) for name in names}
        networks = {f"{name}.{key}": value for name in states for key, value in states[name].items()}
        return rest | {"state_dict": rest["deepspeed"]["others"] | networks}
    import torch.distributed.checkpoint as dcp  # slow to import

    sizes = read_index(folder)
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in sizes.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no_dist.*|.*torch.distributed is.*")
        dcp.load(tensors, checkpoint_id=str(folder), no_dist=True)
    return merge_tensors(rest, tensors)


def read_rest(folder: Path) -> dict[str, Any]:
    """Reads everything in a sharded checkpoint except its tensors.

    Raises:
        RefusedInput: the folder is not a sharded checkpoint.
    """
    if not (folder / REST).is_file():
        raise RefusedInput(f"{folder} is not a sharded checkpoint: it has no {REST}.")
    return torch.load(folder / REST, map_location="cpu", weights_only=True)


def read_index(folder: Path) -> dict[str, Any]:
    """Returns the sizes and dtypes of the tensors in a sharded checkpoint."""
    from torch.distributed.checkpoint import FileSystemReader

    return FileSystemReader(str(folder)).read_metadata().state_dict_metadata


def split_tensors(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Splits a checkpoint into the rest and the named tensors of networks and optimizers."""
    tensors = {f"state_dict/{name}": value for name, value in checkpoint["state_dict"].items()}
    optimizers = []
    for number, saved in enumerate(checkpoint.get("optimizer_states", [])):
        others: dict[int, dict[str, Any]] = {}
        for index, values in saved["state"].items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"optimizer_states/{number}/{index}/{key}"] = value
                else:
                    others.setdefault(index, {})[key] = value
        optimizers.append(saved | {"state": others})
    return checkpoint | {"state_dict": {}, "optimizer_states": optimizers}, tensors


def merge_tensors(rest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Reverts `split_tensors`."""
    optimizers = [saved | {"state": dict(saved["state"])} for saved in rest["optimizer_states"]]
    checkpoint = rest | {"state_dict": {}, "optimizer_states": optimizers}
    for name, value in tensors.items():
        kind, _, name = name.partition("/")
        if kind == "state_dict":
            checkpoint["state_dict"][name] = value
        else:
            number, index, key = name.split("/")
            state = checkpoint["optimizer_states"][int(number)]["state"]
            state[int(index)] = state.get(int(index), {}) | {key: value}
    return checkpoint
