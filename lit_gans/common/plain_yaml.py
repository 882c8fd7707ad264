"""YAML of others is checked before it is loaded: how large it becomes, how deep it is, and how long its numbers are."""

from __future__ import annotations

from pathlib import Path

import yaml

_MOST_BYTES = 2**20
_MOST_NODES = 100_000  # with all aliases replaced by what they stand for, as loaders do
_DEEPEST = 50
_MOST_DIGITS = 400  # of a number; Python refuses integers with 4,300, and no float has more than 309 before the point


def refuse_hostile_yaml(content: bytes | str, name: str) -> None:
    """Checks a text without constructing what it describes, in memory that its length bounds.

    Args:
        content: text of a file; bytes are UTF-8.
        name: of the file, for the error message.

    Raises:
        yaml.YAMLError: it is not YAML, not text, too large, too deep, or grows through its aliases.
    """
    _refuse_large(len(content), name)
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"{name} is not UTF-8 text: {error}") from error
    _Size(name).add_all(text)


def refuse_hostile_file(path: Path) -> None:
    """Checks a file like `refuse_hostile_yaml`, and its size before it is read."""
    refuse_large_yaml(path)
    refuse_hostile_yaml(path.read_bytes(), str(path))


def refuse_large_yaml(path: Path) -> None:
    """Raises `yaml.YAMLError` for a file that is larger than a configuration is."""
    _refuse_large(path.stat().st_size, str(path))


def _refuse_large(num_bytes: int, name: str) -> None:
    if num_bytes > _MOST_BYTES:
        raise yaml.YAMLError(f"{name} has {num_bytes} bytes: expected at most {_MOST_BYTES}")


class _Size:
    """Counts the nodes of a text while it is parsed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[tuple[str | None, int]] = []  # anchor of each open collection, and its nodes so far
        self._nodes = 0
        self._of_anchor: dict[str, int] = {}

    def add_all(self, text: str) -> None:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                self._open.append((event.anchor, self._nodes))
                self._refuse(len(self._open) > _DEEPEST, f"is nested more than {_DEEPEST} deep")
                self._nodes += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = self._open.pop()
                self._keep(anchor, self._nodes - before)
            elif isinstance(event, yaml.AliasEvent):
                self._refuse(event.anchor not in self._of_anchor, f"has an alias *{event.anchor} of nothing, or in it")
                self._nodes += self._of_anchor[str(event.anchor)]
            elif isinstance(event, yaml.ScalarEvent):
                self._refuse(_is_long(event), f"has a number with more than {_MOST_DIGITS} digits")
                self._nodes += 1
                self._keep(event.anchor, 1)
            self._refuse(self._nodes > _MOST_NODES, f"has more than {_MOST_NODES} values with its aliases")

    def _keep(self, anchor: str | None, nodes: int) -> None:
        if anchor is not None:
            self._of_anchor[anchor] = nodes

    def _refuse(self, hostile: bool, how: str) -> None:
        if hostile:
            raise yaml.YAMLError(f"{self.name} {how}")


def _is_long(scalar: yaml.ScalarEvent) -> bool:
    value = scalar.value
    return len(value) > _MOST_DIGITS and scalar.style is None and value.lstrip("+-")[:1].isdigit() and " " not in value
