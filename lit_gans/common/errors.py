"""Exceptions whose message is shown to the user without a traceback, and helpers that raise them."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/lit-gans/lit_gans"  # no release is on PyPI yet


class RefusedInput(Exception):
    """Raised for invalid input, before training or in the first step that detects the problem.

    The message states the problem, its location and a remedy. On the command line, the exit code is 2. The class does
    not derive from `ValueError`, because jsonargparse would then try the other types of a union and hide the message.
    """


class FailedWrite(Exception):
    """Raised if a file cannot be written during training. On the command line, the exit code is 1."""


def one_line(text: object) -> str:
    """Replaces each sequence of spaces and line breaks in a text, such as an error message, by one space."""
    return " ".join(str(text).split())


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Context manager that converts a library's exceptions for invalid user input to `RefusedInput`.

    The message consists of `what`, followed by the first line of the library's message.
    """
    try:
        yield
    except (RefusedInput, MemoryError):
        raise
    except Exception as error:
        reason = one_line((str(error).strip() or type(error).__name__).splitlines()[0])
        raise RefusedInput(f"{what}: {reason.rstrip('.')}.") from error


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception of torch says that the memory of the device or of the machine is exhausted.

    Besides `torch.OutOfMemoryError`, torch raises `RuntimeError` if CUDA, a library of CUDA or the CPU cannot allocate
    memory. The exception of a process that torch started contains the message of the original exception.
    """
    text = f"{type(error).__name__}: {error}"
    signs = ("OutOfMemoryError", "out of memory", "can't allocate memory", "_STATUS_ALLOC_FAILED")
    return any(sign in text for sign in signs)


def out_of_memory(error: Exception) -> str:
    """Returns a message for torch's out-of-memory error: the failed allocation, and the settings to change."""
    needed = next((part for part in str(error).split(". ") if part.startswith("Tried to allocate")), "")
    return (
        f"the device ran out of memory{f' ({needed[0].lower()}{needed[1:]})' if needed else ''}: lower data.batch_size,"
        " and increase model.accumulate_gradients by the same factor to keep the same steps; or use precision=bf16, or"
        " smaller networks."
    )


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns a hint for an error message: the most similar valid name, or all valid names if none is similar."""
    names = sorted(set(candidates))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"valid names: {', '.join(names)}." if names else "nothing can be set there."


def refuse_below(least: float, **values: float | None) -> None:
    """Raises `RefusedInput` for the first value that is less than `least`, NaN or infinite. None is valid."""
    for name, value in values.items():
        if value is not None and not least <= value < math.inf:
            raise RefusedInput(f"{name}={value} must be at least {least}{' and finite' if value >= least else ''}.")


def refuse_not_positive(**values: float | None) -> None:
    """Raises `RefusedInput` for the first value that is not greater than 0, NaN or infinite. None is valid."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise RefusedInput(f"{name}={value} must be greater than 0 and finite.")


def install_command(extra: str) -> str:
    """Returns a hint that contains the command that installs an optional dependency.

    If this code is in a clone of the repository, the command keeps it there.
    """
    clone = Path(__file__).resolve().parents[2]
    is_clone = (clone / "pyproject.toml").is_file() and (clone / ".git").exists()
    what = f'-e "{clone}[{extra}]"' if is_clone else f'"lit-gans[{extra}] @ git+{REPOSITORY}"'
    return f"install it with: python -m pip install {what}"


def import_extra(module: str, extra: str) -> Any:
    """Imports a module of an optional dependency, which the extra `extra` installs.

    Raises:
        RefusedInput: the package is not installed. The message contains the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RefusedInput(f"the package {error.name} is missing: {install_command(extra)}") from error
