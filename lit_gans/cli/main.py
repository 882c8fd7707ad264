"""`lit-gans`: runs a command and imports only the modules that it needs."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable

from lit_gans.cli.commands import commands, find, main_of
from lit_gans.common.errors import nearest
from lit_gans.config.mistakes import DONE, FAILED, REFUSED, STOPPED, refused_is_2

_FLAGS = ("-h", "--help")
_LAST = """
Every key can be set as key=value; `lit-gans train --cfg job` prints all keys, `lit-gans COMMAND --help` describes them.
Exit codes: 0 success, 1 failure while running, 2 invalid input (said on stderr), 130, 143 stopped by signal."""


def main() -> None:
    """Entry point of the console script."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `lit-gans train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def overview() -> str:
    """Returns all commands with their summaries."""
    lines = [f"  {command.usage:<55} {command.summary}" for command in commands().values()]
    return "\n".join(["lit-gans: GANs for PyTorch Lightning", "", *lines, _LAST])


def run(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code. Classes of the current folder are found, after installed ones."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the locale may lack characters of a path
            stream.reconfigure(errors="backslashreplace")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if not arguments or arguments[0] in (*_FLAGS, "help"):
        print(overview())
        return DONE
    name, *rest = arguments
    if name == "--version":
        from lit_gans import __version__

        print(__version__)
        return DONE
    if find(name) is None:
        print(f"lit-gans: there is no command '{name}'; {nearest(name, commands())}", file=sys.stderr)
        return REFUSED
    if not {*_FLAGS} & {*rest} or name == "fit":  # the Lightning CLI has a help of its own
        return stopped(lambda: main_of(name)(rest))
    from lit_gans.cli.help import command_help, train_help

    if name != "train":
        print(command_help(name))
        return DONE
    return refused_is_2(lambda: print(train_help(rest)))


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
