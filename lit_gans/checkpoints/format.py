"""Contents that lit_gans adds to Lightning checkpoints, and conversion of values to and from plain containers."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from lit_gans.checkpoints.diffusers import is_published
from lit_gans.checkpoints.exported import RECORD, is_exported, read_exported
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.checkpoints.remote import Remote, is_address
from lit_gans.checkpoints.sharded import read_sharded
from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.atomic import replacing, writing
from lit_gans.common.errors import RefusedInput
from lit_gans.common.lightning import TorchCheckpointIO

FORMAT_VERSION = 1
FORMAT_KEY = "lit_gans"  # key of a dict with "format_version", "class_path" and the entries of callbacks
# advice in error messages for an argument that a checkpoint cannot contain
PLAIN_ARGUMENTS = (
    "build what depends on it in the constructor, from numbers, strings, lists and dicts, which checkpoints contain."
)
_PLAIN = {NoneType, bool, int, float, complex, str, bytes, torch.dtype, torch.device}
# entries of FORMAT_KEY that an export's configuration has, too
_MARK = ("format_version", "class_path", "unsaved", "class_names")
_PATHS = {"perceptual_file"}  # arguments of modules that are paths
EMA_KEY = "generator_ema"  # key of a dict with "format_version" and "state_dict", with the generator's tensor names


def class_path(thing: type) -> str:
    """Returns the import path of a class."""
    return f"{thing.__module__}.{thing.__qualname__}"


def to_plain(value: Any) -> Any:
    """Converts dataclasses, and objects with `init_args`, to plain containers that `weights_only=True` can load."""
    if is_dataclass(value):
        init_args = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"class_path": class_path(type(value)), "init_args": to_plain(init_args)}
    if hasattr(type(value), "init_args"):
        return {"class_path": class_path(type(value)), "init_args": to_plain(value.init_args)}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def is_plain(value: Any) -> bool:
    """Returns whether checkpoints store a value that `to_plain` has converted, so that `weights_only=True` loads it."""
    if isinstance(value, list | dict):
        return all(map(is_plain, value.values() if isinstance(value, dict) else value))
    return type(value) in _PLAIN


def flat(plain: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested containers to a dict with dotted names, for comparisons.

    The names do not contain the keys `class_path` and `init_args`.
    """
    values: dict[str, Any] = {}
    for key, value in plain.items():
        name = prefix if key in ("class_path", "init_args") else f"{prefix}.{key}" if prefix else key
        values |= flat(value, name) if isinstance(value, dict) else {name: value}
    return values


def from_plain(value: Any) -> Any:
    """Restores the objects that `to_plain` converted.

    The classes must already be imported, because loading a checkpoint must not import code.
    """
    if isinstance(value, list):
        return tuple(from_plain(item) for item in value)
    if not (isinstance(value, dict) and "class_path" in value):
        return value
    module, _, name = str(value["class_path"]).rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    if module in sys.modules and cls is None:
        raise RefusedInput(f"{module} has no class {name}: the checkpoint is from another version of its package.")
    if not (isinstance(cls, type) and (is_dataclass(cls) or hasattr(cls, "init_args"))):
        raise RefusedInput(f"{value['class_path']} is not imported: import its module before the checkpoint is loaded.")
    return cls(**{key: from_plain(item) for key, item in value["init_args"].items()})


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a checkpoint, by default on the CPU. No code in the checkpoint is executed.

    A checkpoint can be a file, a sharded folder, or a folder that `lit-gans export` wrote. For the folder of a run, the
    best or the last checkpoint is read, see `find_checkpoint`. Sharded tensors are read as full tensors.

    Args:
        path: see `find_checkpoint`.
        map_location: see `torch.load`. Sharded and exported checkpoints are always read on the CPU.

    Raises:
        RefusedInput: the path is not a checkpoint, or the checkpoint is damaged.
    """
    if is_address(path):
        with TemporaryDirectory(prefix="lit_gans_") as folder:
            return read_checkpoint(Remote(str(path)).download(Path(folder) / Path(path).name), map_location)
    path = find_checkpoint(path)
    if is_published(path):
        raise RefusedInput(
            f"{path} is not a checkpoint of lit_gans, but it can be a published autoencoder: start a run from it with"
            " model=autoencoder_kl init_from=PATH, or use AutoencoderKL.from_diffusers."
        )
    if path.is_dir() and not is_exported(path):
        return read_sharded(path)
    checkpoint = joined(*read_exported(path)) if is_exported(path) else read_torch_file(path, map_location=map_location)
    if not (isinstance(checkpoint, dict) and isinstance(checkpoint.get("state_dict"), dict)):
        raise RefusedInput(
            f"{path} is not a Lightning checkpoint: it has no state_dict; use a file that was written during training,"
            " for example checkpoints/last.ckpt of a run."
        )
    if not isinstance(checkpoint.get(FORMAT_KEY, {}), dict):
        raise RefusedInput(f"{path} is not a checkpoint of lit_gans: its entry {FORMAT_KEY} is not a mapping.")
    return checkpoint


def measurements_of(checkpoint: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the states of the metric callbacks that measured the networks of a checkpoint.

    Each state has the entries `values` and `protocol`.
    """
    states = (state for state in checkpoint.get("callbacks", {}).values() if isinstance(state, dict))
    return [
        state
        for state in states
        if {"values", "protocol", "measured_at"} <= {*state}
        if state["measured_at"] == checkpoint.get("global_step") and state["protocol"]
    ]


def split(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]]:
    """Splits a checkpoint into the parts that `lit-gans export` writes: configuration, named tensors, and the rest.

    The configuration contains no path of a perceptual network's weights, because only training needs them.
    """
    hyper_parameters = to_plain(dict(checkpoint["hyper_parameters"]))
    paths = {name: hyper_parameters[name] for name in _PATHS & hyper_parameters.keys()}
    config = {
        "library_name": "lit-gans",
        **{name: checkpoint[FORMAT_KEY][name] for name in _MARK if name in checkpoint[FORMAT_KEY]},
        "iteration": checkpoint.get("global_step", 0),
        "hyper_parameters": hyper_parameters | dict.fromkeys(paths),
    }
    average = checkpoint.get(EMA_KEY, {}).get("state_dict", {})
    tensors = {**checkpoint["state_dict"], **{f"{EMA_KEY}.{name}": value for name, value in average.items()}}
    rest = {key: value for key, value in checkpoint.items() if key not in ("state_dict", EMA_KEY)}
    return config, tensors, rest | {"hyper_parameters": paths}


def joined(config: dict[str, Any], tensors: dict[str, Tensor], rest: dict[str, Any]) -> dict[str, Any]:
    """Merges the parts of an exported checkpoint. `rest` can be empty. This is the inverse of `split`."""
    mark = {name: config[name] for name in (*_MARK, RECORD) if name in config}
    average = {name.partition(".")[2]: tensors[name] for name in tensors if name.startswith(f"{EMA_KEY}.")}
    entries, paths = (rest.get(key) for key in (FORMAT_KEY, "hyper_parameters"))
    checkpoint = {
        **rest,
        "global_step": config["iteration"],
        "hyper_parameters": config["hyper_parameters"] | (paths if isinstance(paths, dict) else {}),
        "state_dict": {name: value for name, value in tensors.items() if not name.startswith(f"{EMA_KEY}.")},
        FORMAT_KEY: {**(entries if isinstance(entries, dict) else {}), **mark},
    }
    return checkpoint | ({EMA_KEY: {"format_version": FORMAT_VERSION, "state_dict": average}} if average else {})


class CheckpointFiles(TorchCheckpointIO):
    """Checkpoint plugin that writes local files atomically and durably, and reads checkpoints safely.

    The plugin reads files and sharded folders from local paths and from URLs such as `s3://bucket/last.ckpt`. No code
    in a checkpoint is executed. Lightning's own plugin writes files at URLs.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, *args: Any, **kwargs: Any) -> None:
        if is_address(path):
            return super().save_checkpoint(checkpoint, path, *args, **kwargs)
        with writing(Path(path)), replacing(Path(path)) as part:
            torch.save(checkpoint, part)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Loads a checkpoint on the CPU. Code in the file is executed only if `weights_only` is `False`.

        Raises:
            RefusedInput: the checkpoint is damaged.
        """
        if weights_only is False:
            return super().load_checkpoint(path, weights_only=False)
        return read_checkpoint(path)
