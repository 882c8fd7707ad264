"""Descriptions of arguments from docstrings, of imported objects or from source files without importing them."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docstring_parser

REQUIRED = "required"


@dataclass(frozen=True)
class Documented:
    """Documentation of a function, read from its source.

    Args:
        summary: first paragraph of the docstring.
        description: further paragraphs.
        defaults: default of each argument as text, `REQUIRED` if it has none.
        meanings: description of each argument.
    """

    summary: str
    description: str
    defaults: dict[str, str]
    meanings: dict[str, str]


def read_function(module: str, name: str) -> Documented:
    """Reads the signature and docstring of a function of this package without importing its module, which would import
    torch.
    """
    path = Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    arguments = function.args.args
    given = [as_typed(ast.literal_eval(value)) for value in function.args.defaults]
    defaults = {argument.arg: REQUIRED for argument in arguments}
    defaults |= dict(zip(list(defaults)[len(arguments) - len(given) :], given, strict=True))
    text = ast.get_docstring(function) or ""
    summary, _, description = text.partition("\n\n")
    description = description.partition("Args:")[0].strip()
    return Documented(" ".join(summary.split()), description, defaults, _meanings(text))


def meanings(target: type | Callable[..., Any]) -> dict[str, str]:
    """Returns descriptions of the arguments of a class (including its bases') or function, from docstrings."""
    if not inspect.isclass(target):
        return _meanings(inspect.getdoc(target) or "")
    found: dict[str, str] = {}
    for base in reversed(target.__mro__[:-1]):
        for text in (vars(base).get("__doc__"), vars(base)["__init__"].__doc__ if "__init__" in vars(base) else None):
            own = _meanings(inspect.cleandoc(text)) if isinstance(text, str) else {}
            found |= {name: _referred(base, name, meaning, found) for name, meaning in own.items()}
    return found


def _referred(cls: type, name: str, meaning: str, known: dict[str, str]) -> str:
    """Resolves a reference to another docstring, such as "see `ImageData`"."""
    reference = re.fullmatch(r"(?:see|as in|as of) `(\w+)`\.?", meaning)
    if reference is None:
        return meaning
    other = vars(sys.modules[cls.__module__]).get(reference[1])
    elsewhere = meanings(other) if inspect.isclass(other) and other is not cls else {}
    return known.get(name) or elsewhere.get(name) or meaning


def _meanings(docstring: str) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        parameters = docstring_parser.parse(docstring, style=docstring_parser.DocstringStyle.GOOGLE).params
    except docstring_parser.ParseError:  # another library's docstring style
        return {}
    for parameter in parameters:
        text = " ".join((parameter.description or "").split())
        found |= {name.strip(): text for name in parameter.arg_name.split(",")}
    return found


def as_typed(value: Any) -> str:
    """Formats a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_typed, value))}]"
    return str(value)
