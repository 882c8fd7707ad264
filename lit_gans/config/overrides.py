"""Conversion of command-line arguments to overrides in Hydra's grammar, as pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from lit_gans.common.errors import RefusedInput
from lit_gans.config.source import SEARCH_PATH

SWEEP_FLAGS = ("-m", "--multirun")
_FLAGS = {
    *SWEEP_FLAGS,
    *("-h", "--help", "--hydra-help", "--version", "--cfg", "-c", "--resolve", "--package", "-p", "--run", "-r"),
    *("--shell-completion", "-sc", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i"),
}
_CHOICES = {"--cfg": ("job", "hydra", "all")}
_CHOICES["-c"] = _CHOICES["--cfg"]
_PLAIN = re.compile(r"[\w./:+-]*", re.ASCII)
_LITERAL = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?|true|false|[+-]?inf|nan", re.IGNORECASE)
_SWEEP = re.compile(r"(choice|range|interval|glob|shuffle|sort)\(.*\)")
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_KEY = re.compile(r"[+~]{0,2}([\w./@:-]+)")


def key_of(argument: str) -> str | None:
    """Returns the key of a `key=value` argument, without Hydra's prefixes, or None for other arguments."""
    key, equals, _ = argument.partition("=")
    match = _KEY.fullmatch(key)
    return match[1] if equals and match and not argument.startswith("-") else None


def refuse_options(arguments: list[str], hint: Callable[[str, str], str]) -> None:
    """Raises `RefusedInput` for an unknown option, such as `--max_steps 10`.

    Args:
        arguments: command-line arguments.
        hint: returns the end of the error message for a key and its value.
    """
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        chosen = value if equals else next(iter(arguments[index + 1 :]), "")
        if name in _CHOICES and chosen not in _CHOICES[name]:
            raise RefusedInput(f"{name} {chosen}: expected one of {', '.join(_CHOICES[name])}.")
        if not name.startswith("-") or name in _FLAGS or not name.strip("-"):
            continue
        if re.fullmatch(r"-(c|p|i|cd|cn|cp)\S+", name) and not name.startswith("--"):  # a short flag with its value
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if not equals and following and not following.startswith("-") and key_of(following) is None:
            value = following
        key = name.lstrip("-").replace("-", "_")
        raise RefusedInput(f"{argument}: settings are given as key=value; {hint(key, value or 'VALUE')}")


def refuse_missing_folders(arguments: list[str]) -> None:
    """Raises `RefusedInput` for a folder of configurations that does not exist, which Hydra would silently skip."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in ("--config-dir", "-cd"):
            folders = [value if equals else next(iter(arguments[index + 1 :]), "")]
        elif name == "hydra.searchpath":
            items = (item.strip(" '\"") for item in value.strip("[] ").split(","))
            folders = [item.removeprefix("file://") for item in items if item.startswith("file://")]
        else:
            continue
        for folder in folders:
            if "${" not in folder and not Path(folder).is_dir():
                raise RefusedInput(f"{name}: there is no folder '{folder}'; give the folder of your YAML files.")


def refuse_bare(arguments: list[str], key_for: Callable[[str], str]) -> None:
    """Raises `RefusedInput` for a value without a key, such as a bare path.

    Args:
        arguments: command-line arguments.
        key_for: returns the key that such a value most likely belongs to.
    """
    after_flag = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        named = key_of(argument) is not None and not Path(argument).exists()  # a folder may be named `lr=0.1`
        if not (is_flag or after_flag or named or argument.startswith("~")):
            raise RefusedInput(f"'{argument}' has no key: did you mean {key_for(argument)}={argument}?")
        after_flag = is_flag and argument not in (*SWEEP_FLAGS, "--resolve", "-r", "--run", "-h", "--help")


def is_literal(value: str) -> bool:
    """Returns whether Hydra's grammar reads a value as a number, a truth value or null."""
    return value == "null" or _LITERAL.fullmatch(value) is not None


def quoted(arguments: list[str], is_text: Callable[[str, str], bool]) -> list[str]:
    """Quotes all text values for Hydra's grammar, so that paths are passed unchanged.

    Commas are part of the text; in a sweep they separate values, unless a file with the complete name exists.

    Args:
        arguments: command-line arguments.
        is_text: returns whether a key takes a value as text or a path; called only if the value is not a plain word,
            or is one that the grammar parses as a number.
    """
    sweeping = any(flag in arguments for flag in SWEEP_FLAGS)
    return [_quoted(argument, is_text, sweeping) for argument in arguments]


def _quoted(argument: str, is_text: Callable[[str, str], bool], sweeping: bool) -> str:
    key = key_of(argument)
    value = argument.partition("=")[2]
    plain = _PLAIN.fullmatch(value) and not _LITERAL.fullmatch(value)  # a folder may be named 2024
    if key is None or plain or _is_quoted(value):
        return argument
    if (sweeping and _SWEEP.fullmatch(value)) or not is_text(key, value):
        return argument
    values = value.split(",") if sweeping and not Path(value).exists() else [value]
    return argument.partition("=")[0] + "=" + ",".join(item if _is_quoted(item) else quote(item) for item in values)


def _is_quoted(value: str) -> bool:
    return _QUOTED.fullmatch(value) is not None


def quote(text: str) -> str:
    """Quotes text for Hydra's grammar, where a backslash escapes quotes, and itself before quotes."""
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\'" * bool(match[2]), text) + "'"


def with_classes(overrides: list[str]) -> list[str]:
    """Appends the source of classes to Hydra's search path, so that users' files take precedence."""
    found = [item for item in overrides if item.startswith("hydra.searchpath=")]
    if not found:
        return [*overrides, f"hydra.searchpath=[{SEARCH_PATH}]"]
    if SEARCH_PATH in found[-1]:
        return overrides
    inside = found[-1].partition("=")[2].strip().removeprefix("[").removesuffix("]").strip()
    joined = f"hydra.searchpath=[{inside}{',' if inside else ''}{SEARCH_PATH}]"
    return [item for item in overrides if item not in found] + [joined]
