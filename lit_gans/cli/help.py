"""Help texts of `lit-gans COMMAND --help`: description, keys with meanings and defaults, and examples.

The texts come from docstrings and signatures. For every command except `train`, the source file is parsed instead of
imported, so that `--help` does not import torch.
"""

from __future__ import annotations

import ast
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import docstring_parser

from lit_gans.cli.command import described, file_of

_Row = tuple[str, str, str]  # key, meaning, default

_KEYS: tuple[_Row, ...] = (
    ("seed", "seed of the weights, the latents, the order of the images and all other random numbers", "default: 0"),
    (
        "resume",
        "none starts a new run; auto resumes the newest run of this name; the path of a checkpoint resumes this"
        " checkpoint",
        "default: none",
    ),
    (
        "init_from",
        "checkpoint whose networks initialize a new run: path of a checkpoint, of a run folder or of a folder that"
        " lit-gans export wrote; zoo/NAME; or hf://owner/name",
        "default: null",
    ),
)
_MORE = (
    "lit-gans train GROUP=OPTION --help, for example with model=dcgan, lists the keys of an option with their meanings."
    " lit-gans train --cfg job prints every key with its value. With -m, values can be separated by commas, and every"
    " combination of values is trained."
)


def command_help(name: str) -> str:
    """Returns the help of a command other than `train`, from the docstring and signature of the function `name`."""
    functions = (node for node in file_of(name).body if isinstance(node, ast.FunctionDef))
    function = next(node for node in functions if node.name == name)
    docstring = docstring_parser.parse(ast.get_docstring(function) or "", docstring_parser.DocstringStyle.GOOGLE)
    meanings = {parameter.arg_name: parameter.description or "" for parameter in docstring.params}
    keys = [argument.arg for argument in function.args.args if argument.arg in meanings]
    defaults = [f"default: {as_typed(ast.literal_eval(value))}" for value in function.args.defaults]
    defaults = ["required"] * (len(keys) - len(defaults)) + defaults
    lines = [described(name).usage]
    for paragraph in (docstring.description or "").split("\n\n"):
        lines += ["", *_wrapped(paragraph)]
    rows = ((key, meanings[key], default) for key, default in zip(keys, defaults, strict=True))
    return "\n".join([*lines, "", "Keys", *_table(rows), *_examples(name)])


def train_help(arguments: list[str]) -> str:
    """Returns the help of `train`: the keys of the options that the arguments select, or else all groups and options.

    Raises:
        RefusedInput: If a selected option does not exist.
    """
    from lit_gans.config.groups import GROUPS, group_of, options

    overrides = [argument for argument in arguments if not argument.startswith("-")]
    selected = {key: option for key, _, option in (item.partition("=") for item in overrides) if group_of(key)}
    lines = ["lit-gans train [GROUP=OPTION ...] [key=value ...]", ""]
    if selected:
        return "\n".join([*lines, *_option_lines(selected, overrides), *_examples("train")])
    lines += _wrapped("Trains a GAN. Without arguments, a DCGAN learns digits in about two minutes on two CPU cores.")
    lines += ["", "Groups: GROUP=OPTION selects an option"]
    for name, group in GROUPS.items():
        for place, meaning in group.places.items():
            lines += ["", *_wrapped(f"{place}: {meaning}", "  "), *_wrapped(", ".join(options(name)), "    ")]
    return "\n".join([*lines, "", "Keys", *_table(_KEYS), "", *_wrapped(_MORE), *_examples("train")])


def _option_lines(selected: dict[str, str], overrides: list[str]) -> Iterator[str]:
    """Yields lines with the keys that every selected option sets. For an experiment, yields the lines of its file."""
    from omegaconf import DictConfig, OmegaConf

    from lit_gans.config.completed import is_experiment_file
    from lit_gans.config.groups import CONFIG_PACKAGE, GROUPS
    from lit_gans.config.hydra_app import compose

    config = compose(*overrides)
    for key, option in selected.items():
        group, _, place = key.partition("@")
        place = place or GROUPS[group].node or group
        node = OmegaConf.select(config, place)
        yield f"{key}={option}"
        if group == "experiment":
            ours = files(CONFIG_PACKAGE) / group / f"{option}.yaml"
            file = Path(option) if is_experiment_file(f"{key}={option}") else ours
            yield from file.read_text(encoding="utf-8").splitlines()
        elif isinstance(node, DictConfig):
            yield from _table(_rows(OmegaConf.to_container(node), place))
        else:
            yield f"  sets {place}={as_typed(node)}"
        yield ""


def _rows(node: Any, path: str) -> Iterator[_Row]:
    """Yields rows with the keys of a configuration node and of all nested nodes."""
    from lit_gans.config.signatures import meanings, target_class, without_remains

    cls = target_class(node["_target_"], path) if "_target_" in node else None
    by_name = meanings(cls) if cls else {}
    for name, value in (without_remains(cls, node) if cls else node).items():
        key, meaning = f"{path}.{name}", by_name.get(str(name), "")
        if isinstance(value, dict) and ("_target_" in value or not cls):
            if meaning:
                yield key, meaning, value.get("_target_", "").rpartition(".")[2]
            yield from _rows(value, key)
        elif name != "_target_":
            yield key, meaning, "required" if value == "???" else f"default: {as_typed(value)}"


def as_typed(value: Any) -> str:
    """Formats a value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_typed, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{as_typed(each)}' for name, each in value.items())}}}"
    return str(value)


def _examples(name: str) -> list[str]:
    return ["", "Examples", *(f"  {line}" for line in described(name).examples)]


def _table(rows: Iterable[_Row]) -> list[str]:
    """Returns two lines or more per row: the key with its default, and the meaning below it."""
    return [line for key, meaning, default in rows for line in (f"  {key} [{default}]", *_wrapped(meaning, "      "))]


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Wraps a text to the width of the terminal."""
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
