"""What a person may have meant by a key that does not exist: found among the keys that do."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

_SYNONYMS = {"gpu": "devices", "gpus": "devices", "iterations": "max_steps", "iters": "max_steps", "wd": "weight_decay"}
_MOST = 3  # suggestions


def suggested_keys(key: str, config: Any) -> list[str]:
    """Returns the existing keys that a person most likely meant by `key`, the nearest first.

    A key is near where its last name is the same (`max_steps`: `trainer.max_steps`), where its initials are (`lr`:
    `learning_rate`), where it has all words of the name (`steps`: `max_steps`), or where it is spelled almost so. Keys
    below the same parent go first; those that nothing sets come last.

    Args:
        key: the dotted name that does not exist.
        config: the composed configuration.
    """
    parent, _, name = key.rpartition(".")
    name = _SYNONYMS.get(name, name)
    values = _values(config)
    inside = [path for path in values if path.startswith(f"{parent}.")] if parent else list(values)
    for paths in (inside, list(values)):
        for alike in (_is_same, _has_initials, _has_words):
            found = [path for path in paths if alike(name, path.rpartition(".")[2])]
            if found:
                return sorted(found, key=lambda path: _rank(path, values[path]))[:_MOST]
    return []


def _is_same(name: str, last: str) -> bool:
    return name == last


def _has_initials(name: str, last: str) -> bool:
    return len(name) > 1 and "_" in last and name == "".join(word[0] for word in last.split("_") if word)


def _has_words(name: str, last: str) -> bool:
    return len(name) > 2 and _words(name) <= _words(last)


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in name.split("_")}


def _rank(path: str, value: Any) -> tuple[bool, int, int]:
    return value is None, len(path.rpartition(".")[2].split("_")), path.count(".")


def _values(node: Any, prefix: str = "") -> dict[str, Any]:
    """Returns all values of a configuration by dotted name, references to other values as they are written."""
    found: dict[str, Any] = {}
    for name in node:
        path = f"{prefix}{name}"
        if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name):
            found[path] = ""
        elif isinstance(node[name], DictConfig):
            found |= _values(node[name], f"{path}.")
        elif name != "_target_":
            found[path] = node[name]
    return found
