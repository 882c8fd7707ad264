"""Docstrings with one entry for several arguments, `alpha, beta: weights`, as mkdocstrings reads them: one for each."""

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +\S.*)*)", re.M)


class Grouped(griffe.Extension):
    """Repeats the entry of several arguments for each of them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _ENTRY.sub(_each, obj.docstring.value)


def _each(entry: re.Match[str]) -> str:
    indent, names, text = entry.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))
