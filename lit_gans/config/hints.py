"""Suggestions of existing keys for a key that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lit_gans.common.errors import nearest

_SYNONYMS = {"gpu": "devices", "gpus": "devices", "iterations": "max_steps", "iters": "max_steps", "wd": "weight_decay"}
_OF_NODES = {  # groups whose options apply to a node of the model
    "optimizer": ("model.generator_optimizer", "model.discriminator_optimizer"),
    "schedule": ("model.generator_optimizer.schedule", "model.discriminator_optimizer.schedule"),
}
_GROUPS = ("experiment", "strategy", "precision")  # not keys
_INSTEAD = {
    "data.root": "data=folder data.root=FOLDER is a folder of images.",
    "run": "resume=PATH continues a run, hydra.run.dir=FOLDER is the folder of a new one.",
    "resume": "lit-gans train resumes a run, other commands take checkpoint=PATH.",
}
_NAME = "NAME"
_MOST = 3  # number of suggestions


def did_you_mean(key: str, config: Any, value: str | None = None) -> str:
    """Returns the end of an error message about a key that does not exist.

    Args:
        key: dotted name of the key.
        config: composed configuration.
        value: value that was given for the key, if known.
    """
    if key in _INSTEAD:
        return _INSTEAD[key]
    group = key.partition(".")[0]
    if group != key and group in config and config[group] is None:
        return f"{group} is none: leave it out, or choose {group}=NAME."
    name = _bare(key)
    if name in _OF_NODES:
        return f"choose {' or '.join(f'{name}@{node}={value or _NAME}' for node in _OF_NODES[name])}."
    found = suggested_keys(key, config)
    if found:
        return f"did you mean {' or '.join(repr(path) if value is None else f'{path}={value}' for path in found)}?"
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    if not isinstance(node, DictConfig):
        return did_you_mean(parent, config) if parent else "lit-gans COMMAND --help lists the keys."
    names = [str(item) for item in node if item != "_target_"]
    if not names and list(node):  # a user's class without a schema
        return f"an argument of your own class takes a plus: +{key}=..."
    return nearest(name, names)


def suggested_keys(key: str, config: Any) -> list[str]:
    """Returns the existing keys that the user most likely meant by `key`.

    A key matches if it has the same last name (`max_steps`: `trainer.max_steps`), the same initials (`bs`:
    `batch_size`), a similar spelling under the same parent, or contains all words of `key` (`steps`: `max_steps`).
    Keys with the same parent come first, and keys with a value come before keys without.

    Args:
        key: dotted name that does not exist.
        config: composed configuration.
    """
    parent = key.rpartition(".")[0]
    name = _SYNONYMS.get(_bare(key), _bare(key))
    values = _values(config)
    inside = {path: value for path, value in values.items() if path.startswith(f"{parent}.")} if parent else values
    beside = _spelled_almost_so(key, config)
    return (
        _nearest(name, _is_same, inside)
        or _nearest(name, _is_same, values)
        or _nearest(name, _has_initials, inside)
        or _nearest(name, _has_initials, values)
        or ([beside] if beside else _nearest(name, _has_words, inside))
    )


def _nearest(name: str, is_alike: Callable[[str, str], bool], values: dict[str, Any]) -> list[str]:
    ranks = {path: _rank(path, value) for path, value in values.items() if is_alike(name, _bare(path))}
    return [path for path, rank in ranks.items() if rank == min(ranks.values())][:_MOST]


def _bare(key: str) -> str:
    return key.rpartition(".")[2]


def _spelled_almost_so(key: str, config: Any) -> str | None:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    names = [str(item) for item in node if item != "_target_"] if isinstance(node, DictConfig) else []
    names += _GROUPS if not parent and isinstance(config, DictConfig) and "trainer" in config else ()  # of training
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"{parent}.{close[0]}".lstrip(".") if close else None


def _is_same(name: str, last: str) -> bool:
    return name == last


def _has_initials(name: str, last: str) -> bool:
    return len(name) > 1 and "_" in last and name == "".join(word[0] for word in last.split("_") if word)


def _has_words(name: str, last: str) -> bool:
    return len(name) > 2 and _words(name) <= _words(last)


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in name.split("_")}


def _rank(path: str, value: Any) -> tuple[bool, int]:
    return value is None, len(_bare(path).split("_"))


def _values(node: Any, prefix: str = "") -> dict[str, Any]:
    """Returns all values of a configuration by dotted name, except references to other keys."""
    found: dict[str, Any] = {}
    for name in node:
        path = f"{prefix}{name}"
        if OmegaConf.is_interpolation(node, name):  # users set the key that it refers to
            continue
        if OmegaConf.is_missing(node, name):
            found[path] = ""
        elif isinstance(node[name], DictConfig):
            found |= _values(node[name], f"{path}.")
        elif name != "_target_":
            found[path] = node[name]
    return found
