"""Published autoencoders: folders of `diffusers.AutoencoderKL`, and checkpoints of latent diffusion's own code.

Reading a file never executes code. Tensors are returned with the names that diffusers uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput, refusing

CLASS = "AutoencoderKL"
WEIGHTS, CONFIG = "diffusion_pytorch_model.safetensors", "config.json"
INDEX = f"{WEIGHTS}.index.json"
DOWN, UP = "DownEncoderBlock2D", "UpDecoderBlock2D"
_FIRST_STAGE = "first_stage_model."  # prefix of the autoencoder's tensors in a checkpoint of a diffusion model
_TRAINING = ("loss.", "model_ema.")  # prefixes of tensors that are not part of the autoencoder itself
_LDM_GROUPS = 32  # number of groups in latent diffusion's group norms; checkpoints do not store this number

# supported entries of config.json, with the default values of missing entries
_DEFAULTS: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": [DOWN],
    "up_block_types": [UP],
    "block_out_channels": [64],
    "layers_per_block": 1,
    "act_fn": "silu",
    "latent_channels": 4,
    "norm_num_groups": 32,
    "sample_size": 32,
    "scaling_factor": 0.18215,
    "shift_factor": None,
    "latents_mean": None,
    "latents_std": None,
    "force_upcast": True,
    "use_quant_conv": True,
    "use_post_quant_conv": True,
    "mid_block_add_attention": True,
}
_COUNTS = ("in_channels", "out_channels", "layers_per_block", "latent_channels", "norm_num_groups")
_FLAGS = ("use_quant_conv", "use_post_quant_conv", "mid_block_add_attention")


@dataclass(frozen=True)
class Published:
    """A published autoencoder.

    Attributes:
        config: entries of `config.json`. For a checkpoint of latent diffusion, the entries are inferred from its
            tensors, and `sample_size`, `scaling_factor` and `shift_factor` are missing.
        tensors: tensors by their names in diffusers.
        originals: names of the tensors in the file, by their names in diffusers.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    originals: dict[str, str]


def is_published(path: str | Path) -> bool:
    """Returns whether a path is a .safetensors file, or a folder that diffusers wrote for a network of any class."""
    if Path(path).suffix == ".safetensors":
        return True
    try:
        config = json.loads((Path(path) / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):  # `RecursionError` is raised if JSON is nested too deeply
        return False
    return isinstance(config, dict) and "_class_name" in config


def read_published(path: str | Path) -> Published:
    """Loads an autoencoder to the CPU.

    Args:
        path: folder of `diffusers.AutoencoderKL`, or a .safetensors or .ckpt file of latent diffusion's code. The file
            contains an autoencoder, or a diffusion model including its autoencoder (`first_stage_model`).

    Raises:
        RefusedInput: if the path does not exist, a file is missing or damaged, or the file does not contain a supported
            autoencoder.
    """
    path = Path(path)
    if path.is_dir():
        config = read_config(path)
        tensors, rename = _read_folder(path), _OLD_ATTENTION
    elif path.is_file():
        tensors = _read_file(path)
        _refuse_if_not_ldm(tensors, path)
        rename = {**_ldm_names(1 + _highest(tensors, r"decoder\.up\.(\d+)\.")), **_OLD_ATTENTION}
    else:
        raise RefusedInput(
            f"there is no autoencoder at {path}: use a folder with {CONFIG} and {WEIGHTS}, or a .safetensors or .ckpt"
            " file of latent diffusion's code."
        )
    originals = {_renamed(name, rename): name for name in tensors}
    renamed = {new: tensors[name] for new, name in originals.items()}
    return Published(config if path.is_dir() else _inferred(renamed), renamed, originals)


def write_diffusers(folder: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Writes the folder of `diffusers.AutoencoderKL`, and returns its path.

    Args:
        folder: folder to write to. Existing files with the same names are replaced.
        config: entries of `config.json`.
        tensors: contiguous tensors by their names in diffusers.
    """
    from safetensors.torch import save_file  # imported here, because only exported folders require safetensors

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)  # otherwise, diffusers would read the shards of an existing index
    with replacing(folder / WEIGHTS) as part:
        save_file(dict(tensors), part, metadata={"format": "pt"})
    with replacing(folder / CONFIG) as part:
        part.write_text(json.dumps({"_class_name": CLASS, **config}, indent=2) + "\n", encoding="utf-8")
    return folder


# ---- the folder of diffusers


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the `config.json` of a folder that diffusers wrote, including default values.

    Raises:
        RefusedInput: the file is missing or damaged, or does not describe a supported autoencoder.
    """
    path = folder / CONFIG
    if not path.is_file():
        nested = folder / "vae"
        hint = f"it is a pipeline, use {nested}" if (nested / CONFIG).is_file() else f"use a folder with {CONFIG}"
        raise RefusedInput(f"{folder} contains no {CONFIG}: {hint}.")
    with refusing(f"{path} cannot be read as JSON"):
        config = json.loads(path.read_bytes())
    name = config.get("_class_name") if isinstance(config, dict) else None
    if name != CLASS:
        described = "does not name a class of diffusers" if name is None else f"is of the class {name}"
        ours = "; lit_gans.load reads what lit-gans export wrote" if "class_path" in (config or {}) else ""
        raise RefusedInput(f"{path} {described}, but an autoencoder's _class_name is {CLASS}{ours}.")
    unknown = [
        key for key, value in config.items() if not key.startswith("_") and key not in _DEFAULTS and value is not None
    ]
    if unknown:
        raise RefusedInput(f"{path}: {unknown[0]}={config[unknown[0]]} is not supported; it must be null or missing.")
    config = _DEFAULTS | {key: value for key, value in config.items() if key in _DEFAULTS}
    _refuse_values(config, path)
    return config


def _refuse_values(config: Mapping[str, Any], path: Path) -> None:
    """Raises `RefusedInput` for the first entry of config.json that `lit_gans` does not support."""
    widths = config["block_out_channels"]
    several = isinstance(widths, list) and widths and all(_is_count(width) for width in widths)
    blocks = len(widths) if several else 0
    sample, factors = config["sample_size"], (config["scaling_factor"], config["shift_factor"])
    checks: dict[str, tuple[bool, str]] = {
        "block_out_channels": (bool(several), "a list of positive integers"),
        "down_block_types": (config["down_block_types"] == [DOWN] * blocks, f"{blocks} times {DOWN}"),
        "up_block_types": (config["up_block_types"] == [UP] * blocks, f"{blocks} times {UP}"),
        **{name: (_is_count(config[name]), "a positive integer") for name in _COUNTS},
        **{name: (isinstance(config[name], bool), "true or false") for name in _FLAGS},
        "act_fn": (config["act_fn"] in ("silu", "swish"), "silu"),
        "out_channels": (config["out_channels"] == config["in_channels"], f"in_channels, {config['in_channels']}"),
        "sample_size": (_is_count(sample) or (isinstance(sample, list) and all(map(_is_count, sample))), "a size"),
        "scaling_factor": (_is_number(factors[0]), "a number"),
        "shift_factor": (factors[1] is None or _is_number(factors[1]), "a number or null"),
    }
    for name, (fits, expected) in checks.items():
        if not fits:
            raise RefusedInput(f"{path}: {name}={json.dumps(config[name])} is not supported; it must be {expected}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _read_folder(folder: Path) -> dict[str, Tensor]:
    if not (folder / INDEX).is_file():
        if not (folder / WEIGHTS).is_file():
            others = ", ".join(sorted(path.name for path in folder.iterdir() if path.name != CONFIG)) or "nothing else"
            raise RefusedInput(
                f"{folder} contains no {WEIGHTS} and no {INDEX}, but {others}: save the autoencoder with"
                " save_pretrained(folder, safe_serialization=True)."
            )
        return _read_safetensors(folder / WEIGHTS)
    path = folder / INDEX
    with refusing(f"{path} cannot be read as the index of a sharded file"):
        names = sorted(set(json.loads(path.read_bytes())["weight_map"].values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise RefusedInput(f"{path} names {outside[0]}: files must be in the same folder, without a path.")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise RefusedInput(
            f"{folder}: {', '.join(missing)} of {len(names)} shards is missing, which {INDEX} names: copy all"
            " files of the folder."
        )
    return {key: value for name in names for key, value in _read_safetensors(folder / name).items()}


def _read_safetensors(path: Path, wanted: Callable[[list[str]], list[str]] = lambda names: names) -> dict[str, Tensor]:
    """Reads tensors from a file. `wanted` selects the tensors from the list of all names."""
    from safetensors import safe_open  # imported here, because only exported folders require safetensors

    with refusing(f"{path} cannot be read as safetensors; copy or download it again"), safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in wanted([*file.keys()])}


# ---- the checkpoint of latent diffusion


def _read_file(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of the autoencoder from a checkpoint, and removes the prefix of a diffusion model."""
    if path.suffix == ".safetensors":
        tensors = _read_safetensors(path, _of_autoencoder)
    else:
        content = read_torch_file(path, "a checkpoint of latent diffusion")
        state = content.get("state_dict", content) if isinstance(content, dict) else {}
        named = {key: value for key, value in state.items() if isinstance(key, str) and isinstance(value, torch.Tensor)}
        tensors = {name: named[name] for name in _of_autoencoder([*named])}
    return {name.removeprefix(_FIRST_STAGE): value for name, value in tensors.items()}


def _of_autoencoder(names: list[str]) -> list[str]:
    first_stage = [name for name in names if name.startswith(_FIRST_STAGE)]
    return [name for name in first_stage or names if not name.removeprefix(_FIRST_STAGE).startswith(_TRAINING)]


def _refuse_if_not_ldm(tensors: Mapping[str, Tensor], path: Path) -> None:
    if any(".down_blocks." in name for name in tensors):
        raise RefusedInput(
            f"{path} has the names of diffusers, but not its settings: use the path of its folder with {CONFIG}."
        )
    for name in (f"{part}.{layer}.weight" for part in ("encoder", "decoder") for layer in ("conv_in", "conv_out")):
        if name not in tensors or tensors[name].dim() != 4:
            first = next(iter(tensors), None)
            found = "it contains no tensors" if first is None else f"its first tensor is {first}"
            raise RefusedInput(
                f"{path} is not an autoencoder of latent diffusion: it has no convolution {name}; {found}."
            )


def _highest(names: Mapping[str, Tensor], pattern: str) -> int:
    """Returns the highest number that a pattern matches at the start of a name, or -1 if no name matches."""
    matches = [re.match(pattern, name) for name in names]
    return max((int(match[1]) for match in matches if match), default=-1)


def _inferred(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the entries of config.json that follow from the names and shapes of an autoencoder's tensors."""
    prefix = r"encoder\.down_blocks\."
    levels = 1 + _highest(tensors, rf"{prefix}(\d+)\.")
    widths = []
    for level in range(levels):
        first = tensors.get(f"encoder.down_blocks.{level}.resnets.0.conv1.weight")
        widths.append(1 if first is None else len(first))
    return {
        "in_channels": tensors["encoder.conv_in.weight"].shape[1],
        "block_out_channels": widths or [len(tensors["encoder.conv_in.weight"])],
        "layers_per_block": max(1, 1 + _highest(tensors, rf"{prefix}0\.resnets\.(\d+)\.")),
        "latent_channels": tensors["decoder.conv_in.weight"].shape[1],
        "norm_num_groups": _LDM_GROUPS,
        "use_quant_conv": "quant_conv.weight" in tensors,
        "use_post_quant_conv": "post_quant_conv.weight" in tensors,
        "mid_block_add_attention": any(".mid_block.attentions." in name for name in tensors),
    }


Renaming = Mapping[str, "str | Callable[[re.Match[str]], str]"]

# names of the attention's layers in older versions of diffusers
_OLD_ATTENTION: Renaming = {
    r"(\.attentions\.0)\.query\.": r"\1.to_q.",
    r"(\.attentions\.0)\.key\.": r"\1.to_k.",
    r"(\.attentions\.0)\.value\.": r"\1.to_v.",
    r"(\.attentions\.0)\.proj_attn\.": r"\1.to_out.0.",
}


def _ldm_names(levels: int) -> Renaming:
    """Returns the names in diffusers, keyed by patterns of the names in latent diffusion's code.

    Latent diffusion counts the decoder's levels from the highest resolution. Diffusers counts them from the lowest.
    """
    return {
        r"^(encoder|decoder)\.norm_out\.": r"\1.conv_norm_out.",
        r"^encoder\.down\.(\d+)\.block\.(\d+)\.": r"encoder.down_blocks.\1.resnets.\2.",
        r"^encoder\.down\.(\d+)\.downsample\.": r"encoder.down_blocks.\1.downsamplers.0.",
        r"^decoder\.up\.(\d+)\.block\.(\d+)\.": lambda m: f"decoder.up_blocks.{levels - 1 - int(m[1])}.resnets.{m[2]}.",
        r"^decoder\.up\.(\d+)\.upsample\.": lambda m: f"decoder.up_blocks.{levels - 1 - int(m[1])}.upsamplers.0.",
        r"\.mid\.block_([12])\.": lambda m: f".mid_block.resnets.{int(m[1]) - 1}.",
        r"\.mid\.attn_1\.norm\.": ".mid_block.attentions.0.group_norm.",
        r"\.mid\.attn_1\.([qkv])\.": r".mid_block.attentions.0.to_\1.",
        r"\.mid\.attn_1\.proj_out\.": ".mid_block.attentions.0.to_out.0.",
        r"(\.resnets\.\d+)\.nin_shortcut\.": r"\1.conv_shortcut.",
    }


def _renamed(name: str, patterns: Renaming) -> str:
    for pattern, new in patterns.items():
        name = re.sub(pattern, new, name)
    return name
