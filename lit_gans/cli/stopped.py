"""Exit codes of commands that a signal stops."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

STOPPED = 128  # plus the number of the signal


def stopped(command: Callable[[], int]) -> int:
    """Returns the exit code of `command`; if Ctrl-C or SIGTERM ends it, prints a line and returns 130 or 143.

    A training that has begun ends by itself, with a checkpoint; this is about what comes before it, a second signal,
    and other commands. Lightning turns Ctrl-C into `sys.exit(1)`, and SIGTERM into a `SystemExit` of its own.
    """
    number = signal.SIGINT
    try:
        return command()
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        if type(end).__name__ == "SIGTERMException":
            number = signal.SIGTERM
        elif not isinstance(end.__context__, KeyboardInterrupt):
            raise
    print(f"lit-gans: stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}.", file=sys.stderr)
    return STOPPED + number
