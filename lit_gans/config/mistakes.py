"""What a command prints for a mistake, and its exit code: a refusal's own sentence, or what a library says of it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from itertools import takewhile

from yaml import YAMLError

from lit_gans.common.errors import RefusedInput, one_line

DONE, FAILED, REFUSED = 0, 1, 2
STOPPED = 128  # plus the number of the signal
DEBUG_VARIABLE = "LIT_GANS_DEBUG"
_MOST_LINES = 4


def refused_is_2(command: Callable[[], int | None]) -> int:
    """Returns the exit code of `command`, 0 for None; for `RefusedInput`, prints its message to stderr and returns 2.

    With `LIT_GANS_DEBUG=1` in the environment, the traceback comes first.
    """
    try:
        return command() or DONE
    except RefusedInput as error:
        if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
            traceback.print_exception(error)
        print(f"lit-gans: {error}", file=sys.stderr)
        return REFUSED


def said(error: BaseException) -> str:
    """Returns what a library says of an error, up to the first empty or indented line, which begins the details; of a
    YAML file everything, since its name and line come last.
    """
    if isinstance(error, YAMLError):
        return one_line(error)
    lines = str(error).strip().splitlines()
    first = takewhile(lambda line: line.strip() and not line.startswith((" ", "\t")), lines[:_MOST_LINES])
    return one_line(" ".join(first)) or type(error).__name__
