"""`lit-gans COMMAND --help`: description of a command, its keys with meanings and defaults, and examples.

Meanings and defaults come from the docstring and the signature of the command's function. Does not import torch.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from lit_gans.cli.commands import place
from lit_gans.config.docs import REQUIRED, read_function

FLAGS = ("-h", "--help")
_CHECKPOINT = "outputs/dcgan_digits/version_0/checkpoints/last.ckpt"
_LONGEST_NAME = 26  # longest name next to which meanings fit in a terminal
_GROUPS = ("data", "metrics", "model")  # keys that take the name of an option: `data=digits`
EXAMPLES = {
    "train": (
        "lit-gans train experiment=sngan_digits trainer.max_steps=300",
        "lit-gans train model=wgan_gp data=folder data.root=PHOTOS data.image_size=64",
        "lit-gans train -m experiment=dcgan_digits seed=0,1,2",
    ),
    "sample": (
        f"lit-gans sample checkpoint={_CHECKPOINT}",
        "lit-gans sample checkpoint=outputs/dcgan_digits/version_0 num=16 seed=3 output=pictures",
        "lit-gans sample checkpoint=outputs/pix2pix_digits/version_0 input=FOLDER",
    ),
    "interpolate": (
        f"lit-gans interpolate checkpoint={_CHECKPOINT}",
        "lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 num=4 steps=12",
        "lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 weights=raw output=walks",
    ),
    "evaluate": (
        f"lit-gans evaluate checkpoint={_CHECKPOINT}",
        "lit-gans evaluate checkpoint=outputs/dcgan_digits/version_0 metrics=digits metrics.num_samples=1000",
        "lit-gans evaluate fake=FOLDER real=FOLDER metrics=inception image_size=64",
    ),
    "describe": (
        "lit-gans describe model=dcgan",
        "lit-gans describe model=sngan data.image_size=32 data.channels=1",
        "lit-gans describe model=wgan_gp model.network=resnet model.block=separable",
    ),
    "export": (
        f"lit-gans export checkpoint={_CHECKPOINT}",
        "lit-gans export checkpoint=outputs/dcgan_digits/version_0 output=my_generator",
        "lit-gans export checkpoint=outputs/dcgan_digits/version_0 format=onnx",
    ),
    "pack": (
        "lit-gans pack data.root=PHOTOS data.image_size=64",
        "lit-gans pack data=cifar10 data.root=FOLDER",
        "lit-gans pack data.root=PHOTOS stream=NEW_FOLDER",
    ),
    "compare": (
        "lit-gans compare A.json B.json",
        "lit-gans evaluate checkpoint=RUN output=A.json",
        "lit-gans evaluate checkpoint=OTHER_RUN output=B.json",
    ),
    "tune": (
        "lit-gans tune",
        "lit-gans tune model=sngan data=cifar10 minutes=5",
        "lit-gans tune experiment=dcgan_digits output=mine/experiment/fast.yaml",
    ),
    "bench": (
        "lit-gans bench gans=[dcgan,sngan] batch_sizes=[64,128,256]",
        "lit-gans bench strategies=[ddp,fsdp] processes=2 modes=[bf16]",
        "lit-gans bench output=gpu.json",
    ),
}
_COMPARE = """\
lit-gans compare A.json B.json

Prints two evaluations side by side and which one is better by each score. Both files are written by lit-gans evaluate.
Incomparable values (different real images, extractors or numbers of samples) raise an error with all reasons and exit
with code 2."""
_TUNE = """\
lit-gans tune model=NAME data=NAME key=value ...

Finds the largest batch without a loss of speed, and the fastest precision, memory format, compilation, placement of the
data and number of threads, by short trainings in turns. Prints why each is chosen or not, and writes an experiment file
that lit-gans train experiment=FILE takes. All keys of lit-gans train are accepted.

Keys
  minutes  time of all trials together [default: 2]
  output   file to write, in a folder named experiment [default: tuned/experiment/tuned_NAME.yaml]"""
_WRITTEN = {"compare": _COMPARE, "tune": _TUNE}  # those whose help is not read from a signature


def command_help(command: str) -> str:
    """Returns the help of a command other than training."""
    if command in _WRITTEN:
        return "\n".join([_WRITTEN[command], *examples(command)])
    found = read_function(*place(command))
    lines = [f"lit-gans {command} key=value ...", "", *wrapped(found.summary)]
    for paragraph in filter(None, found.description.split("\n\n")):
        lines += ["", *wrapped(" ".join(paragraph.split()))]
    lines += ["", "Keys"]
    lines += table(
        (name, _meaning(name, found.meanings.get(name, "")), found.defaults[name]) for name in found.defaults
    )
    groups = [name for name in _GROUPS if name in found.defaults]
    if groups:
        keys = ", ".join(f"{name}=NAME" for name in groups)
        lines += ["", *wrapped(f"lit-gans train --help lists the names for {keys}; with a name added, its keys.")]
    return "\n".join([*lines, *examples(command)])


def _meaning(name: str, meaning: str) -> str:
    return f"{name}=NAME: {meaning}" if name in _GROUPS else meaning


def examples(command: str) -> list[str]:
    """Returns the examples of a command as lines."""
    return ["", "Examples", *(f"  {line}" for line in EXAMPLES[command])]


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Returns keys with their meanings and defaults as lines, wrapped to the width of the terminal."""
    rows = list(rows)
    longest = max((len(name) for name, _, _ in rows), default=0)
    indent = longest + 4 if longest <= _LONGEST_NAME else 6
    lines = []
    for name, meaning, default in rows:
        text = f"{meaning} [{default if default == REQUIRED else f'default: {default}'}]".strip()
        first = f"  {name}".ljust(indent)
        if longest > _LONGEST_NAME:  # each name has a line of its own
            lines.append(first)
            first = " " * indent
        lines += wrapped(text, first, " " * indent)
    return lines


def wrapped(text: str, first: str = "", indent: str = "") -> list[str]:
    """Wraps a text to the width of the terminal."""
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    unbroken = textwrap.TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False)
    return unbroken.wrap(text)
