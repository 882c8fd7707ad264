"""Tables of the README and of the site that come from the code: GANs, commands, configuration keys.

`python -m docs.generate` writes the table of the README; the site's hook writes the others at every build.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- gans -->\n", "<!-- end of gans -->\n"
NOT_KEYS = ("_target_", "image_size", "channels", "seed")  # of a model: the data and the run set them


GROUPS = {
    "experiment": "a named run: only what differs from the defaults",
    "model": "the paper's defaults, from its signature",
    "data": "see [data](data.md); some need an extra",
    "strategy": "`auto` is one device; see [several processes](distributed.md)",
    "precision": "`fp16` needs CUDA and is refused elsewhere",
    "metrics": "see [metrics](metrics.md)",
    "logger": "`default` is csv and tensorboard; extras `wandb`, `mlflow`",
    "callbacks": "`callbacks.ema`, `.samples`, `.watch`, `.early_stopping`, `.checkpoint`, `.throughput`, ...",
    "optimizer": "`optimizer@model.generator_optimizer`, `optimizer@model.discriminator_optimizer`",
    "schedule": "`schedule@model.generator_optimizer.schedule`, and of the discriminators",
    "score": "`score@metrics.scores.kid`, `score@metrics.scores.mifid`, `score@metrics.scores.prdc`",
}


def options(group: str) -> list[str]:
    """Returns the options of a group: files in `conf/`, and classes."""
    from lit_gans.config import source

    return sorted({path.stem for path in (ROOT / "conf" / group).glob("*.yaml")} | set(source.options(group)))


def group_table() -> str:
    """Returns the groups of a training with their options."""
    lines = ["| group | options | |", "|---|---|---|"]
    lines += [
        f"| `{group}` | {', '.join(f'`{name}`' for name in options(group))} | {said} |"
        for group, said in GROUPS.items()
    ]
    return "\n".join(lines)


def first_sentence(text: str | None) -> str:
    """Returns the first sentence of a docstring in one line."""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^.A-Z][.!])(?<!\bal\.)\s", paragraph)[0].rstrip(".")


def gan_table() -> str:
    """Returns the registered GANs with what their docstrings say and the paper that their files name."""
    from lit_gans.config.registry import gans

    lines = ["| `model=` | class | description | paper |", "|---|---|---|---|"]
    order = {name: index for index, name in enumerate(("gan", "dcgan", "sngan", "wgan_gp"))}
    for name, cls in sorted(gans().items(), key=lambda item: (order.get(item[0], len(order)), item[0])):
        if not cls.__module__.startswith("lit_gans."):
            continue
        said = re.sub(r" \((equation|algorithm)[^)]*\)", "", first_sentence(cls.__doc__))
        file = f"{cls.__module__.replace('.', '/')}.py"
        lines.append(f"| `{name}` | [`{cls.__name__}`]({file}) | {said} | {_paper(cls.__module__)} |")
    return "\n".join(lines) + "\n"


def _paper(module: str) -> str:
    """Returns authors and year, else the title, of the paper that the first sentence of a file names."""
    text = " ".join((importlib.import_module(module).__doc__ or "").split("\n\n")[0].split())
    authors, title = re.search(r": ([^:]*? \d{4}),", text), re.search(r'"([^"]*)"', text)
    return authors[1] if authors else title[1] if title else text


def key_table(target: Any, skip: tuple[str, ...] = ("_target_",), prefix: str = "") -> str:
    """Returns the arguments of a class or function: key, default from the signature, meaning from the docstring."""
    from lit_gans.config.docs import meanings
    from lit_gans.config.signatures import schema

    said = meanings(target if callable(target) else type(target))  # an option of `optimizer` is a value
    values = {name: value for name, value in schema(target).items() if name not in skip}
    rows = [f"| `{prefix}{name}` | {_default(value)} | {said.get(name, '')} |" for name, value in values.items()]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) if rows else "No keys of its own."


def _default(value: Any) -> str:
    if isinstance(value, dict) and "_target_" in value:
        inside = ", ".join(f"{name}={_default(item).strip('`')}" for name, item in value.items() if name != "_target_")
        return f"`{value['_target_'].rpartition('.')[2]}({inside})`"
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return "required" if shown == "???" else f"`{shown}`" if shown else "`''`"


def commands() -> dict[str, Callable[..., Any]]:
    """Returns the function of each command whose signature is its configuration, by name."""
    from lit_gans.cli.commands import commands

    names = [name for name, said in commands().items() if not said.text and name != "fit"]
    return {name: getattr(importlib.import_module(f"lit_gans.cli.{name}"), name) for name in names}


def cli_reference() -> str:
    """Returns the page of the command line: the overview, and every command with its docstring, keys and examples."""
    from lit_gans.cli.commands import commands as found
    from lit_gans.cli.help import command_help
    from lit_gans.cli.main import overview
    from lit_gans.cli.train_help import train_help

    lines = ["# Command line", "", "Written from the commands and their docstrings when the site is built.", ""]
    lines += ["```text", overview(), "```", "", "## lit-gans train", "", "```text", train_help([]), "```", ""]
    for words, function in commands().items():
        said = inspect.cleandoc(function.__doc__ or "")
        text, _, _ = said.partition("\n\nArgs:")
        refused = re.search(r"^Raises:\n((?:[ ]{4}.*\n?)+)", said, flags=re.M)
        lines += [f"## lit-gans {words}", "", text, "", key_table(function), ""]
        if refused:
            sentence = " ".join(refused[1].split()).removeprefix("RefusedInput: ").rstrip(".")
            lines += [f"Refused with exit code 2: {sentence}.", ""]
        lines += ["```bash", *found()[words].examples, "```", ""]
    for name in ("compare", "tune"):
        lines += [f"## lit-gans {name}", "", "```text", command_help(name), "```", ""]
    lines += ["## lit-gans fit", "", "The [Lightning CLI](../guides/lightning.md) on the same classes.", ""]
    return "\n".join(lines)


def configuration_groups() -> dict[str, tuple[str, dict[str, Any], str]]:
    """Returns the groups whose options are classes: what they are, the classes by name, the prefix of their keys."""
    from lightning.pytorch import Callback, LightningDataModule
    from lightning.pytorch.strategies import Strategy

    from lit_gans.config.registry import classes, gans
    from lit_gans.config.source import option, options
    from lit_gans.metrics.extractors.base import Extractor
    from lit_gans.metrics.scores.base import FeatureScore
    from lit_gans.training.schedules import Schedule

    scores = classes("lit_gans.metrics.scores", FeatureScore)
    optimizers = {name: option(f"optimizer/{name}") for name in options("optimizer")}
    return {
        "model": ("GANs", gans(), "model."),
        "data": ("sources of images", classes("lit_gans.data.sources", LightningDataModule), "data."),
        "callbacks": ("callbacks", classes("lit_gans.callbacks", Callback), ""),
        "metrics.extractor": ("feature extractors", classes("lit_gans.metrics.extractors", Extractor), ""),
        "score": ("scores", scores, ""),
        "optimizer": ("optimizers of one network", optimizers, ""),
        "schedule": ("schedules", classes("lit_gans.training.schedules", Schedule), ""),
        "strategy": ("strategies for several processes", classes("lit_gans.strategies", Strategy), "trainer.strategy."),
    }


def configuration_reference() -> str:
    """Returns the page of every key of every class that a configuration can name."""
    from lit_gans.config.source import UNSET
    from lit_gans.training.optim import Optimizer

    lines = [
        "# Configuration keys",
        "",
        "Written from the signatures and docstrings when the site is built: a default is stated once, in the signature."
        " The keys of `trainer.` are the arguments of Lightning's `Trainer`. `lit-gans train --cfg job` prints the"
        " composed configuration of a run.",
        "",
    ]
    for group, (what, members, prefix) in configuration_groups().items():
        lines += [f"## {group}", "", f"The {what}.", ""]
        for name, cls in sorted(members.items()):
            skip = NOT_KEYS if group == "model" else ("_target_", *UNSET.get(group, ()))
            made = f"torch.optim.{cls.name}" if isinstance(cls, Optimizer) else cls.__name__
            lines += [f"### {group} {name} {{ #{group.replace('.', '-')}-{name} }}", "", f"`{made}`"]
            lines += ["", f"{first_sentence(cls.__doc__)}.", "", key_table(cls, skip, prefix), ""]
    return "\n".join(lines)


def room_page(room: str, said: str) -> str:
    """Returns the page of a subpackage's API: one mkdocstrings entry for each of its files."""
    folder = ROOT / "lit_gans" / room
    paths = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return "\n".join([f"# lit_gans.{room}", "", said, "", *(f"::: {module}\n" for module in modules)])


def write_readme() -> None:
    """Writes the table of the GANs into the README."""
    path = ROOT / "README.md"
    text = path.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    path.write_text(text[:begin] + gan_table() + text[end:])


if __name__ == "__main__":
    write_readme()
