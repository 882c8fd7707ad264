"""Error messages and exit codes of commands for invalid input."""

from __future__ import annotations

import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable
from itertools import takewhile

from yaml import YAMLError

from lit_gans.common.errors import RefusedInput, one_line

DONE, FAILED, REFUSED = 0, 1, 2
STOPPED = 128  # added to the number of the signal that stopped the command
DEBUG_VARIABLE = "LIT_GANS_DEBUG"
_MAX_LINES = 4  # maximum number of lines of a library's message that are printed


def exit_with_2(command: Callable[[], int | None]) -> int:
    """Runs `command` and returns its exit code, where None means 0.

    If the command raises `RefusedInput`, prints the message to stderr and returns 2. With `LIT_GANS_DEBUG=1` in the
    environment, prints the traceback before the message.
    """
    try:
        return command() or DONE
    except RefusedInput as error:
        if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
            traceback.print_exception(error)
        print(f"lit-gans: {error}", file=sys.stderr)
        return REFUSED


def refuse_spaces(arguments: list[str]) -> None:
    """Raises `RefusedInput` for `key = value`, which a shell passes on as several arguments."""
    for before, item in itertools.pairwise(arguments):
        ends = re.fullmatch(r"[\w.@/+~]+=", before) and "=" not in item and not item.startswith("-")
        if ends or item.startswith("="):
            key = before.rstrip("=")
            raise RefusedInput(f"{key}: settings are given as KEY=VALUE, without spaces before and after the '='.")


def error_message(error: BaseException) -> str:
    """Returns the message of a library's error in one line, without details.

    The details begin at the first empty or indented line. The message of a YAML error is returned in full, because the
    file name and the line number come last.
    """
    if isinstance(error, YAMLError):
        return one_line(error)
    lines = str(error).strip().splitlines()
    message = takewhile(lambda line: line.strip() and not line.startswith((" ", "\t")), lines[:_MAX_LINES])
    return one_line(" ".join(message)) or type(error).__name__
