"""Exported networks: a folder with safetensors and JSON files, in the layout of the Hugging Face Hub.

`model.safetensors` contains the tensors of `state_dict`, and the tensors of the EMA generator with the prefix
`generator_ema.`. `config.json` contains the class of the model and its arguments. `README.md` is a model card, which
shows the images of `samples.png`. The optional file `training.pt` contains the optimizer states and the remaining
contents of the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.common.identity import digest_of

WEIGHTS, CONFIG, CARD, TRAINING = "model.safetensors", "config.json", "README.md", "training.pt"
SAMPLES = "samples.png"
RECORD = "record"  # key in `config.json` of the data, scores and license that the model card lists; optional
NETWORKS = "networks_sha256"  # key of the networks' digest in `training.pt`
HUB = "hf://"  # prefix of the name of a Hub repository
# types of the required entries in `config.json`
_KINDS = {"class_path": str, "hyper_parameters": dict, "format_version": int, "iteration": int}


def is_exported(folder: str | Path) -> bool:
    """Returns whether a folder contains the required files that `lit-gans export` writes."""
    return (Path(folder) / WEIGHTS).is_file() and (Path(folder) / CONFIG).is_file()


def read_exported(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]]:
    """Reads an exported folder on the CPU. No code in the folder is executed.

    Returns:
        The configuration, the tensors by name, and the remaining contents of the checkpoint, which are empty if there
        is no `training.pt`.

    Raises:
        RefusedInput: a file is missing or damaged.
    """
    config, tensors = read_config(folder), _read_weights(folder / WEIGHTS)
    return config, tensors, read_training(folder, tensors) if (folder / TRAINING).is_file() else {}


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file  # imported here, because only exported folders require safetensors

    with refusing(f"{path} cannot be read as safetensors"):
        return load_file(path)


def read_training(folder: Path, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """Reads `training.pt`, the contents of a checkpoint other than its networks.

    Args:
        folder: path of the exported folder.
        tensors: tensors of the networks in the folder; None reads the tensors if they are needed.

    Raises:
        RefusedInput: `training.pt` is missing or damaged, or does not belong to the networks in the folder.
    """
    path = folder / TRAINING
    if not path.is_file():
        raise RefusedInput(
            f"{folder} contains networks without their optimizers: use init_from={folder} to start a new run from these"
            " networks. To resume a run, export it with optimizers=true."
        )
    rest = read_torch_file(path)
    iteration = read_config(folder)["iteration"]
    matches = isinstance(rest, dict) and rest.get("global_step") == iteration
    if matches:
        tensors = _read_weights(folder / WEIGHTS) if tensors is None else tensors
        matches = rest.pop(NETWORKS, None) == networks_digest(tensors)
    if not matches:
        raise RefusedInput(
            f"{path} does not belong to the networks in its folder, which are from iteration {iteration}: export again."
        )
    return rest


def networks_digest(tensors: Mapping[str, Tensor]) -> str:
    """Returns the digest of the tensors of networks, which links `training.pt` to these networks."""
    return digest_of({name: tensors[name] for name in sorted(tensors)})


def downloaded(address: str) -> Path:
    """Downloads a repository of the Hugging Face Hub, and returns its folder in the local cache of the Hub.

    Args:
        address: name of the repository, as `hf://owner/name`.

    Raises:
        RefusedInput: the extra `hub` is not installed, or the repository cannot be downloaded.
    """
    hub = import_extra("huggingface_hub", "hub")
    with refusing(f"{address} cannot be downloaded from the Hub"):
        return Path(hub.snapshot_download(address.removeprefix(HUB), allow_patterns=[WEIGHTS, CONFIG, TRAINING]))


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the `config.json` of an exported folder.

    Raises:
        RefusedInput: the file is missing or damaged, or no export of `lit_gans` has written it.
    """
    path = folder / CONFIG
    with refusing(f"{path} cannot be read as JSON"):
        config = json.loads(path.read_bytes())
    for name, kind in _KINDS.items():
        if not (isinstance(config, dict) and isinstance(config.get(name), kind)):
            raise RefusedInput(
                f"{path} does not describe networks of lit_gans: {name} is missing or is not of type {kind.__name__};"
                " use a folder that lit-gans export wrote."
            )
    return config
