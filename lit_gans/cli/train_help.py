"""`lit-gans train --help`: groups and their options, or the keys of a chosen option with meanings and defaults."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from lit_gans.cli.help import examples, table, wrapped
from lit_gans.config.docs import REQUIRED, as_typed, meanings
from lit_gans.config.hydra_app import CONFIG_PACKAGE, compose
from lit_gans.config.signatures import without_remains
from lit_gans.config.source import GROUPS, options

_KEYS = {
    "seed": ("seed of weights, latents, the order of the images and all other random numbers", "0"),
    "resume": ("none; auto, the newest run of this name; or the path of a checkpoint to continue from", "none"),
    "init_from": ("path of a checkpoint, or folder of a run, whose networks initialize a new run", "null"),
}
_USAGE = "lit-gans train [GROUP=OPTION ...] [key=value ...]"


def train_help(arguments: list[str]) -> str:
    """Returns the help of training, for all groups or for the groups that the arguments choose.

    Raises:
        RefusedInput: an option that does not exist.
    """
    overrides = [argument for argument in arguments if argument not in ("-h", "--help", "-m", "--multirun")]
    keys = [argument.partition("=")[0] for argument in overrides]
    chosen = [key for key in keys if key.partition("@")[0] in GROUPS]
    return "\n".join([*(_of_groups(chosen, overrides) if chosen else _overview()), *examples("train")])


def _overview() -> list[str]:
    lines = [_USAGE, "", *wrapped("Trains a GAN. Without arguments: digits, in about two minutes on two CPU cores.")]
    lines += ["", "Groups: GROUP=OPTION chooses one"]
    for name, meaning in ((name, meaning) for group in GROUPS.values() for name, meaning in group.places.items()):
        lines += ["", *wrapped(f"{name}: {meaning}", "  ", "    ")]
        lines += wrapped(", ".join(_options(name.partition("@")[0])), "    ", "    ")
    lines += ["", "Keys", *table((name, meaning, default) for name, (meaning, default) in _KEYS.items())]
    lines += [
        "",
        *wrapped(
            "lit-gans train GROUP=OPTION --help, for example model=dcgan, lists the keys of an option with their"
            " meanings; lit-gans train --cfg job prints every key with its value. -m trains every combination of values"
            " that are separated by commas."
        ),
    ]
    return lines


def _options(group: str) -> list[str]:
    """Returns the names of a group's options, from files and classes."""
    folder = importlib.resources.files(CONFIG_PACKAGE).joinpath(group)
    files = [item.name.removesuffix(".yaml") for item in folder.iterdir()] if folder.is_dir() else []
    return sorted({name for name in files if not name.startswith("_")} | {*options(group)})


def _of_groups(chosen: list[str], overrides: list[str]) -> list[str]:
    config = compose(*overrides)
    lines = [_USAGE]
    for group in chosen:
        option = next(item.partition("=")[2] for item in overrides if item.startswith(f"{group}="))
        lines += ["", f"{group}={option}"]
        if group == "experiment":
            lines += ["", *_experiment(option)]
            continue
        name, _, place = group.partition("@")
        path = place or GROUPS[name].node or name
        node = OmegaConf.select(config, path)
        if not isinstance(node, DictConfig):
            lines += [f"  sets {path}={as_typed(node)}"]
            continue
        lines += table(_rows(node, path)) or ["  has no keys"]
    return lines


def _experiment(option: str) -> list[str]:
    """Returns the settings of an experiment, from its file."""
    file = importlib.resources.files(CONFIG_PACKAGE).joinpath("experiment", f"{option}.yaml")
    if not file.is_file():  # on a user's search path
        return ["  lit-gans train --cfg job prints what it sets"]
    lines = [line for line in file.read_text().splitlines() if "@package" not in line]
    return [f"  {line}" for line in lines]


def _rows(node: DictConfig, path: str) -> Iterator[tuple[str, str, str]]:
    """Yields the keys of a node and its children, with meanings and values."""
    target = _plain(node).get("_target_")
    cls = get_class(target) if target else None
    said = meanings(cls) if cls else {}
    names: list[Any] = list(without_remains(cls, _plain(node)) if cls else node)
    for name in names:
        key = f"{path}.{name}"
        if name == "_target_":
            continue
        missing = OmegaConf.is_missing(node, name)
        inner = None if missing or OmegaConf.is_interpolation(node, name) else node[name]
        if isinstance(inner, DictConfig) and ("_target_" in inner or not target):
            if said.get(str(name)):
                yield key, said[str(name)], str(inner.get("_target_", "")).rpartition(".")[2]
            yield from _rows(inner, key)
        else:
            yield key, said.get(str(name), ""), REQUIRED if missing else _value(node, name)


def _value(node: DictConfig, name: Any) -> str:
    text = as_typed(_plain(node)[name])
    return re.sub(r"\$\{([\w.]+)\}", r"\1", text)  # a reference to another key


def _plain(node: DictConfig) -> dict[Any, Any]:
    values = OmegaConf.to_container(node, resolve=False)
    assert isinstance(values, dict)
    return values
