"""`python -m benchmarks NAME`, from a clone: what the figures of the documentation were measured with."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "step": ("benchmarks.step", "a training step beside loops without Lightning"),
    "data": ("benchmarks.data", "packing and serving images"),
    "metrics": ("benchmarks.metrics", "an evaluation beside torch-fidelity's"),
    "strategies": ("benchmarks.strategies", "strategy=ddp beside Lightning's, and memory of all strategies"),
    "record": ("benchmarks.record", "scores of a trained run for the page of results"),
    "study": ("benchmarks.study.command", "every table and plot of the studies"),
}


def main(arguments: Sequence[str]) -> None:
    """Runs a command, whose options are the arguments of its function."""
    if not arguments or arguments[0] not in COMMANDS:
        lines = [f"  {name:12}{text}" for name, (_, text) in COMMANDS.items()]
        print("python -m benchmarks NAME [--help | --key=value ...]\n", *lines, sep="\n")
        sys.exit(not {"-h", "--help"} & {*arguments})
    from jsonargparse import auto_cli

    from lit_gans.common.errors import RefusedInput
    from lit_gans.common.quiet import quiet

    name, *options = arguments
    function = getattr(importlib.import_module(COMMANDS[name][0]), name)
    quiet()  # after the import of Lightning, which sets up its own log
    try:
        auto_cli(function, args=options, as_positional=False, prog=f"python -m benchmarks {name}", fail_untyped=False)
    except RefusedInput as error:
        sys.exit(f"benchmarks: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
