"""The exception for invalid input: one sentence for the user, exit code 2 on the command line."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class RefusedInput(Exception):
    """Invalid input, raised before the training, or in the first step that shows it. The message states the problem,
    its location and a remedy.

    Not a `ValueError`: jsonargparse would try the other types of a union and hide the message.
    """


class FailedWrite(Exception):
    """A file of a running training cannot be written: one sentence for the user, exit code 1 on the command line."""


def one_line(text: object) -> str:
    """Returns a text, such as an error of a library, with every run of spaces and line breaks as one space."""
    return " ".join(str(text).split())


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raises `RefusedInput` for an error of a library that reads or makes what a user names: `what`, and the first line
    of what the library says.
    """
    try:
        yield
    except (RefusedInput, MemoryError):
        raise
    except Exception as error:
        reason = one_line((str(error).strip() or type(error).__name__).splitlines()[0])
        raise RefusedInput(f"{what}: {reason.rstrip('.')}.") from error


def out_of_memory(error: Exception) -> str:
    """Returns a sentence for torch's error of a device without free memory: what needed it, and what to lower."""
    needed = next((part for part in str(error).split(". ") if part.startswith("Tried to allocate")), "")
    return (
        f"the device ran out of memory{f' ({needed[0].lower()}{needed[1:]})' if needed else ''}: lower data.batch_size,"
        " with model.accumulate_gradients as many times higher for the same steps; or use precision=bf16, or smaller"
        " networks."
    )


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns the end of an error message: the nearest valid name, or all valid names if none is similar."""
    names = sorted(set(candidates))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"valid names: {', '.join(names)}." if names else "nothing can be set there."


def refuse_below(least: float, **values: float | None) -> None:
    """Raises `RefusedInput` for the first value that is less than `least`, not a number or infinite; None passes."""
    for name, value in values.items():
        if value is not None and not least <= value < math.inf:
            raise RefusedInput(f"{name}={value} must be at least {least}{' and finite' if value >= least else ''}.")


def refuse_not_positive(**values: float | None) -> None:
    """Raises `RefusedInput` for the first value that is not greater than 0, not a number or infinite; None passes."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise RefusedInput(f"{name}={value} must be greater than 0 and finite.")


def install_command(extra: str) -> str:
    """Returns a hint with the command that installs a missing optional dependency."""
    return f'install it with: python -m pip install "lit-gans[{extra}]"'


def import_extra(module: str, extra: str) -> Any:
    """Returns a module of a package that an extra installs.

    Raises:
        RefusedInput: the package is not installed; the message gives the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RefusedInput(f"the package {error.name} is missing: {install_command(extra)}") from error
