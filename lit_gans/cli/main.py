"""`lit-gans`: runs a command and imports only the modules that it needs."""

from __future__ import annotations

import os
import sys

from lit_gans.cli.commands import commands, find, main_of
from lit_gans.cli.stopped import stopped

_FLAGS = ("-h", "--help")
_LAST = """
Every key can be set as key=value; `lit-gans train --cfg job` prints all keys, `lit-gans COMMAND --help` describes them.
Exit codes: 0 success, 1 failure while running, 2 invalid input (said on stderr), 130, 143 stopped by signal."""


def main() -> None:
    """Entry point of the console script."""
    try:
        code = stopped(lambda: run(sys.argv[1:]))
        sys.stdout.flush()
    except BrokenPipeError:  # `lit-gans train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def overview() -> str:
    """Returns all commands with their summaries."""
    lines = [f"  {command.usage:<55} {command.summary}" for command in commands().values()]
    return "\n".join(["lit-gans: GANs for PyTorch Lightning", "", *lines, _LAST])


def run(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code. Classes of the current folder are found, after installed ones."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if not arguments or arguments[0] in (*_FLAGS, "help"):
        print(overview())
        return 0
    name, *rest = arguments
    if name == "--version":
        from lit_gans import __version__

        print(__version__)
        return 0
    if find(name) is None:
        from lit_gans.common.errors import nearest

        print(f"lit-gans: there is no command '{name}'; {nearest(name, commands())}", file=sys.stderr)
        return 2
    if not {*_FLAGS} & {*rest} or name == "fit":  # the Lightning CLI has a help of its own
        return main_of(name)(rest)
    if name == "train":
        from lit_gans.cli.train_help import train_help
        from lit_gans.config.mistakes import refused_is_2

        return refused_is_2(lambda: print(train_help(rest)) or 0)
    from lit_gans.cli.help import command_help

    print(command_help(name))
    return 0
