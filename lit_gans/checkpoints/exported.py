"""Networks for others: a folder of safetensors and JSON, in the layout of the Hugging Face Hub.

`model.safetensors` has the tensors of `state_dict`, and those of the average under `generator_ema.…`; `config.json` has
the class and its arguments; `README.md` is a model card; `training.pt`, which is optional, has the optimizers and
everything else that a checkpoint holds.
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
NETWORKS = "networks_sha256"  # key of `training.pt`
HUB = "hf://"  # before the name of a repository
_KINDS = {"class_path": str, "hyper_parameters": dict, "format_version": int, "iteration": int}  # of the configuration


def is_exported(folder: str | Path) -> bool:
    """Returns whether a folder has the files that `lit-gans export` writes."""
    return (Path(folder) / WEIGHTS).is_file() and (Path(folder) / CONFIG).is_file()


def read_exported(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]]:
    """Reads a folder on the CPU, without executing code from it.

    Returns:
        The configuration, the tensors by name, and everything else of the checkpoint; nothing without `training.pt`.

    Raises:
        RefusedInput: a file is missing or damaged.
    """
    config, tensors = _read_config(folder / CONFIG), _read_weights(folder / WEIGHTS)
    return config, tensors, read_training(folder, tensors) if (folder / TRAINING).is_file() else {}


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file  # which the strategies need only for such a folder

    with refusing(f"{path} cannot be read as safetensors"):
        return load_file(path)


def read_training(folder: Path, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """Reads everything of the checkpoint except its networks.

    Args:
        folder: folder of the networks.
        tensors: tensors of the networks; None reads them.

    Raises:
        RefusedInput: the folder was exported without it, or it is damaged or of other networks than those beside it.
    """
    path = folder / TRAINING
    if not path.is_file():
        raise RefusedInput(
            f"{folder} has networks without their optimizers: init_from={folder} begins a new run with them; to go on"
            " with a run, export it with optimizers=true."
        )
    rest = read_torch_file(path)
    iteration = _read_config(folder / CONFIG)["iteration"]
    is_theirs = isinstance(rest, dict) and rest.get("global_step") == iteration
    if is_theirs and NETWORKS in rest:  # earlier versions of lit_gans do not store it
        is_theirs = rest.pop(NETWORKS) == networks_digest(
            _read_weights(folder / WEIGHTS) if tensors is None else tensors
        )
    if not is_theirs:
        raise RefusedInput(f"{path} does not belong to the networks beside it, of iteration {iteration}: export again.")
    return rest


def networks_digest(tensors: Mapping[str, Tensor]) -> str:
    """Returns the digest of the tensors of networks, by which `training.pt` recognizes them."""
    return digest_of({name: tensors[name] for name in sorted(tensors)})


def downloaded(address: str) -> Path:
    """Returns the folder that a repository of the Hugging Face Hub is downloaded to, in the cache of the Hub.

    Args:
        address: `hf://owner/name`.

    Raises:
        RefusedInput: the extra `hub` is not installed, or the Hub does not deliver the repository.
    """
    hub = import_extra("huggingface_hub", "hub")
    with refusing(f"the Hub does not deliver {address}"):
        return Path(hub.snapshot_download(address.removeprefix(HUB), allow_patterns=[WEIGHTS, CONFIG, TRAINING]))


def _read_config(path: Path) -> dict[str, Any]:
    with refusing(f"{path} cannot be read as JSON"):
        config = json.loads(path.read_bytes())
    for name, kind in _KINDS.items():
        if not (isinstance(config, dict) and isinstance(config.get(name), kind)):
            raise RefusedInput(
                f"{path} describes no networks of lit_gans: {name} is no {kind.__name__}; give a folder of lit-gans"
                " export."
            )
    return config
