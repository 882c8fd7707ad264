"""`lit-gans`: finds the command and imports only what it needs."""

from __future__ import annotations

import importlib
import sys

HELP = """\
lit-gans: GANs for PyTorch Lightning

  lit-gans train [experiment=NAME | model=NAME data=NAME] [key=value ...]   train; without any: digits, in two minutes
  lit-gans train -m experiment=dcgan_digits,sngan_digits                    a sweep, with a table at its end
  lit-gans sample checkpoint=PATH num=64                                    a grid and single pictures
  lit-gans interpolate checkpoint=PATH                                      walks between latents
  lit-gans evaluate checkpoint=PATH | fake=DIR real=DIR metrics=NAME        FID, Inception Score, KID and others
  lit-gans compare A.json B.json                                            two evaluations, where they compare
  lit-gans describe model=NAME data.image_size=64                           parameters, multiply-adds, memory
  lit-gans pack data=NAME data.root=PATH                                    decodes and resizes pictures once
  lit-gans bench step [preset=smoke]                                        speed of the training step
  lit-gans bench metrics [preset=smoke]                                     speed of evaluation, and torch-fidelity's
  lit-gans bench data [preset=smoke]                                        speed of packing and serving images
  lit-gans bench strategies                                                 speed and bytes of strategy=ddp
  lit-gans bench startup                                                    seconds until a command has done its work
  lit-gans fit ...                                                          the Lightning CLI

Every key can be set as key=value; `lit-gans train --cfg job` prints them all, `lit-gans COMMAND --help` tells more.
Exit code 0: done. 2: refused input, with one sentence. 1: a failure while running. 130, 143: stopped by a signal."""

LIGHTNING = ("fit",)
COMMANDS = {
    "sample": "sample",
    "interpolate": "interpolate",
    "evaluate": "evaluate",
    "describe": "describe",
    "pack": "pack",
    "bench step": "bench_step",
    "bench metrics": "bench_metrics",
    "bench data": "bench_data",
    "bench strategies": "bench_strategies",
    "bench startup": "bench_startup",
}


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if arguments[0] == "--version":
        from lit_gans import __version__

        print(__version__)
        return 0
    if arguments[0] in LIGHTNING:
        return importlib.import_module("lit_gans.cli.lightning").main(arguments)
    if arguments[0] == "train":
        return importlib.import_module("lit_gans.cli.train").main(arguments[1:])
    if arguments[0] == "compare":
        from lit_gans.config.refusals import refused_is_2

        compare = importlib.import_module("lit_gans.cli.compare").main
        return refused_is_2(lambda: compare(arguments[1:]))
    for words in (2, 1):
        command = " ".join(arguments[:words])
        if command in COMMANDS:
            return importlib.import_module("lit_gans.cli.commands").run(COMMANDS[command], arguments[words:])
    from lit_gans.common.errors import nearest

    names = ["train", "compare", *COMMANDS, *LIGHTNING]
    print(f"lit-gans: there is no command '{command}'; {nearest(command, names)}", file=sys.stderr)
    return 2
