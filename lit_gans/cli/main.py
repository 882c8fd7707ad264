"""Entry point of `lit-gans`. Imports only the modules that the command needs."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable

from lit_gans.cli.command import described, main_of, names
from lit_gans.common.errors import nearest
from lit_gans.config.mistakes import DONE, FAILED, REFUSED, STOPPED, exit_with_2, refuse_spaces

_FLAGS = ("-h", "--help")
_LAST = """
Every key can be set as key=value; `lit-gans train --cfg job` prints all keys, `lit-gans COMMAND --help` describes them.
Exit codes: 0 success, 1 failure while running, 2 invalid input (see stderr), 130 or 143 stopped by a signal."""


def main() -> None:
    """Entry point of the console script."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # for example `lit-gans train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def overview() -> str:
    """Returns the help text that lists all commands with their summaries."""
    lines = [f"  {command.usage:<55} {command.summary}" for command in map(described, names())]
    return "\n".join(["lit-gans: GANs for PyTorch Lightning", "", *lines, _LAST])


def run(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code.

    Adds the current folder to the end of `sys.path`, so that classes in this folder can be imported.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path may contain characters that the locale cannot encode
            stream.reconfigure(errors="backslashreplace")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if not arguments or arguments[0] in (*_FLAGS, "help"):
        print(overview())
        return DONE
    # shells expand ~ only at the beginning of a word, and bash also after a key without dots
    name, *rest = (re.sub(r"=~(?=/|$)", lambda _: f"={os.path.expanduser('~')}", item, count=1) for item in arguments)
    if name == "--version":
        from lit_gans import __version__

        print(__version__)
        return DONE
    if name not in names():
        print(f"lit-gans: there is no command '{name}'; {nearest(name, names())}", file=sys.stderr)
        return REFUSED
    if not {*_FLAGS} & {*rest} or name == "fit":  # the Lightning CLI prints its own help
        return exit_with_2(lambda: refuse_spaces(rest)) or stopped(lambda: main_of(name)(rest))
    from lit_gans.cli.help import command_help, train_help

    if name != "train":
        print(command_help(name))
        return DONE
    from lit_gans.cli.commands.plan import without_minutes

    return exit_with_2(lambda: print(train_help(without_minutes(rest))))


def stopped(command: Callable[[], int]) -> int:
    """Runs `command` and returns its exit code. If Ctrl-C or SIGTERM stops it, prints a line and returns 130 or 143.

    During training, `RunCheckpoint` handles the first signal and saves a checkpoint. This function handles signals
    before the training, second signals, and signals during other commands. Lightning converts Ctrl-C to `sys.exit(1)`,
    and SIGTERM to a subclass of `SystemExit`.
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
