"""YAML of others is checked before it is loaded: how large it becomes, how deep it is, and how long its numbers are."""

from __future__ import annotations

from pathlib import Path

import yaml

_MOST_BYTES = 2**20
_MOST_VALUES = 100_000  # with all aliases replaced by what they stand for, as loaders do
_DEEPEST = 50
_MOST_DIGITS = 400  # of a number; Python refuses integers with 4,300, and no float has more than 309 before the point


def refuse_hostile_file(path: Path) -> None:
    """Checks a file like `refuse_hostile_yaml`, and its size before it is read."""
    refuse_large_yaml(path)
    refuse_hostile_yaml(path.read_bytes(), str(path))


def refuse_large_yaml(path: Path) -> None:
    """Raises `yaml.YAMLError` for a file that is larger than a configuration is."""
    _refuse_size(path.stat().st_size, str(path))


def refuse_hostile_yaml(content: bytes | str, name: str) -> None:
    """Checks a text without constructing what it describes, in memory that its length bounds.

    Args:
        content: text of a file; bytes are UTF-8.
        name: of the file, for the error message.

    Raises:
        yaml.YAMLError: it is not YAML, not text, too large, too deep, or grows through its aliases.
    """
    _refuse_size(len(content), name)
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"{name} is not UTF-8 text: {error}") from error
    num = 0  # values so far, with their aliases
    opened: list[tuple[str | None, int]] = []  # anchor of each open collection, and the number of values before it
    sizes: dict[str | None, int] = {}  # number of values of each anchor
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, num))
            num += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = num - before
        elif isinstance(event, yaml.AliasEvent):
            _refuse_if(event.anchor not in sizes, f"{name} has an alias *{event.anchor} of nothing, or in it")
            num += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            _refuse_if(_is_long_number(event), f"{name} has a number with more than {_MOST_DIGITS} digits")
            sizes[event.anchor] = 1
            num += 1
        _refuse_if(len(opened) > _DEEPEST, f"{name} is nested more than {_DEEPEST} deep")
        _refuse_if(num > _MOST_VALUES, f"{name} has more than {_MOST_VALUES} values with its aliases")


def _is_long_number(scalar: yaml.ScalarEvent) -> bool:
    value = scalar.value
    return len(value) > _MOST_DIGITS and scalar.style is None and value.lstrip("+-")[:1].isdigit() and " " not in value


def _refuse_size(num_bytes: int, name: str) -> None:
    _refuse_if(num_bytes > _MOST_BYTES, f"{name} has {num_bytes} bytes: expected at most {_MOST_BYTES}")


def _refuse_if(hostile: bool, reason: str) -> None:
    if hostile:
        raise yaml.YAMLError(reason)
