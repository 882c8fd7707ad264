"""`lit-gans`: runs a command and imports only the modules that it needs."""

from __future__ import annotations

import importlib
import os
import sys

from lit_gans.cli.commands import PLACES as COMMANDS
from lit_gans.cli.stopped import stopped

HELP = """\
lit-gans: GANs for PyTorch Lightning

  lit-gans train [experiment=NAME | model=NAME data=NAME] [key=value ...]   train; without any: digits, in two minutes
  lit-gans train -m experiment=dcgan_digits,sngan_digits                    a sweep, with a table at its end
  lit-gans sample checkpoint=PATH num=64                                    a grid and single images
  lit-gans interpolate checkpoint=PATH                                      walks between latents
  lit-gans evaluate checkpoint=PATH | fake=DIR real=DIR metrics=NAME        FID, Inception Score, KID and others
  lit-gans compare A.json B.json                                            two evaluations, where they compare
  lit-gans describe model=NAME data.image_size=64                           parameters, multiply-adds, memory
  lit-gans export checkpoint=PATH [format=onnx]                             the generator as safetensors or ONNX
  lit-gans tune model=NAME data=NAME [minutes=2]                            the fastest settings on this machine
  lit-gans pack data=NAME data.root=PATH                                    decodes and resizes images once
  lit-gans bench [gans=[dcgan] batch_sizes=[64,128]]                        speed and memory of GANs on this machine
  lit-gans fit ...                                                          the Lightning CLI

Every key can be set as key=value; `lit-gans train --cfg job` prints all keys, `lit-gans COMMAND --help` describes them.
Exit codes: 0 success, 1 failure while running, 2 invalid input (one sentence on stderr), 130, 143 stopped by signal."""

LIGHTNING = ("fit",)
_MEASURE = "a GAN has no validation loss: use lit-gans evaluate checkpoint=PATH, which measures its samples."
_INSTEAD = {
    "validate": _MEASURE,
    "test": _MEASURE,
    "predict": "samples are its predictions: use lit-gans sample checkpoint=PATH.",
}


def main() -> None:
    """Entry point of the console script."""
    try:
        code = stopped(lambda: run(sys.argv[1:]))
        sys.stdout.flush()
    except BrokenPipeError:  # `lit-gans train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs a command line and returns the exit code. Classes of the current folder are found, after installed ones."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if arguments[0] == "--version":
        from lit_gans import __version__

        print(__version__)
        return 0
    if arguments[0] in _INSTEAD:
        print(f"lit-gans: there is no 'lit-gans {arguments[0]}', {_INSTEAD[arguments[0]]}", file=sys.stderr)
        return 2
    if {"-h", "--help"} & {*arguments} and arguments[0] not in LIGHTNING:
        return _help(arguments)
    if arguments[0] in LIGHTNING:
        return importlib.import_module("lit_gans.cli.lightning").main(arguments)
    if arguments[0] == "train":
        return importlib.import_module("lit_gans.cli.train").main(arguments[1:])
    if arguments[0] == "tune":
        return importlib.import_module("lit_gans.cli.tune").main(arguments[1:])
    if arguments[0] == "compare":
        from lit_gans.config.refusals import refused_is_2

        compare = importlib.import_module("lit_gans.cli.compare").main
        return refused_is_2(lambda: compare(arguments[1:]))
    if arguments[0] in COMMANDS:
        return importlib.import_module("lit_gans.cli.commands").run(arguments[0], arguments[1:])
    return _unknown(arguments)


def _unknown(arguments: list[str]) -> int:
    from lit_gans.common.errors import nearest

    names = ["train", "compare", "tune", *COMMANDS, *LIGHTNING]
    print(f"lit-gans: there is no command '{arguments[0]}'; {nearest(arguments[0], names)}", file=sys.stderr)
    return 2


def _help(arguments: list[str]) -> int:
    """Prints the help of a command and returns the exit code."""
    if arguments[0] in (*COMMANDS, "compare", "tune"):
        from lit_gans.cli.help import command_help

        print(command_help(arguments[0]))
        return 0
    if arguments[0] == "train":
        from lit_gans.cli.train_help import train_help
        from lit_gans.config.refusals import refused_is_2

        return refused_is_2(lambda: print(train_help(arguments[1:])) or 0)
    return _unknown(arguments)
