"""What the README and the site show of the code: tables of GANs, groups and subpackages, and the reference.

`python -m docs.generate` writes the tables of the GANs and of the subpackages, which are read in the repository too.
Everything else is made at every build of the site, of which this file is the hook.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from lit_gans.cli.help import as_typed

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lit_gans"
_TEST = re.compile(r"^<!-- test: .*? -->\n", flags=re.M | re.S)  # what the tests do with the block below
_API = "reference/api"


def on_config(config: Any) -> Any:
    """Lists one API page for each subpackage in the navigation."""
    (reference,) = (entry["Reference"] for entry in config["nav"] if "Reference" in entry)
    reference.append({"API": [{room: f"{_API}/{room}.md"} for room in sorted(rooms())]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages."""
    pages = {
        "reference/cli.md": cli_reference(),
        "reference/configuration.md": configuration_reference(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        **{f"{_API}/{room}.md": room_page(room, said) for room, said in rooms().items()},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the marks of generated tables by the tables, and removes what is said to the tests alone."""
    for name, table in {"gans": gan_table, "groups": group_table}.items():
        mark = f"<!-- generated: {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, re.sub(r"\[(`\w+`)\]\([^)]*\)", r"\1", table()))
    return _TEST.sub("", markdown)


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


def group_table() -> str:
    """Returns the groups of a training with their options."""
    from lit_gans.config.groups import GROUPS, options

    lines = ["| group | options | |", "|---|---|---|"]
    for name, group in GROUPS.items():
        places = (f"`{place}`: {meaning}" if "@" in place else meaning for place, meaning in group.places.items())
        names = ", ".join(f"`{option}`" for option in options(name))
        lines.append(f"| `{name}` | {names} | {'; '.join(places)} |")
    return "\n".join(lines)


def key_table(target: Any, unset: tuple[str, ...] = (), prefix: str = "") -> str:
    """Returns the arguments of a class: key, default from the signature, meaning from the docstring."""
    from lit_gans.config.signatures import meanings, schema

    said = meanings(target if isinstance(target, type) else type(target))  # an option of `optimizer` is a value
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for name, value in schema(target).items():
        if name in ("_target_", *unset):
            continue
        default = "required" if value == "???" else f"`{_default(value)}`"
        lines.append(f"| `{prefix}{name}` | {default} | {said.get(name, '')} |")
    return "\n".join(lines) if len(lines) > 2 else "No keys of its own."


def _default(value: Any) -> str:
    if not isinstance(value, dict):
        return as_typed(value)
    inside = ", ".join(f"{name}={_default(item)}" for name, item in value.items() if name != "_target_")
    return f"{value.get('_target_', '').rpartition('.')[2]}({inside})"


def cli_reference() -> str:
    """Returns the page of the command line: the overview, and the help of every command."""
    from lit_gans.cli.commands import commands
    from lit_gans.cli.help import command_help, train_help
    from lit_gans.cli.main import overview

    texts = {"train": train_help([]), "fit": "The Lightning CLI on the same classes: lit-gans fit --help"}
    lines = ["# Command line", "", "```text", overview(), "```", ""]
    for name in commands():
        lines += [f"## lit-gans {name}", "", "```text", texts.get(name) or command_help(name), "```", ""]
    return "\n".join(lines)


def configuration_reference() -> str:
    """Returns the page of every key of every class that a configuration can name."""
    from lit_gans.config.groups import GROUPS, option, options

    lines = [
        "# Configuration keys",
        "",
        "Written from the signatures and docstrings when the site is built: a default is stated once, in the signature."
        " The keys of `trainer.` are the arguments of Lightning's `Trainer`. `lit-gans train --cfg job` prints the"
        " composed configuration of a run.",
        "",
    ]
    for name, group in GROUPS.items():
        place = f"{name}/_schema" if group.has_files else name
        members = {key: cls for key in options(place) if (cls := option(f"{place}/{key}"))}
        if name == "trainer" or not members:
            continue
        prefix = f"{group.node or name}." if name in ("model", "data", "strategy") else ""
        lines += [f"## {name}", "", f"{'; '.join(group.places.values())}.", ""]
        for key, cls in sorted(members.items()):
            unset = (*group.unset, *(group.shared if name == "model" else ()))
            lines += [f"### {name} {key} {{ #{name}-{key} }}", "", f"{first_sentence(cls.__doc__)}.", ""]
            lines += [key_table(cls, unset, prefix), ""]
    return "\n".join(lines)


def floors() -> list[list[str]]:
    """Returns the subpackages by floor from the top down, as the import rules have them, which the tests check."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    return [re.findall(r"\w+", layer) for layer in layers]


def rooms() -> dict[str, str]:
    """Returns what each subpackage says of itself in the first paragraph of its docstring."""
    names = [name for floor in floors() for name in floor]
    found = {name: ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text())) or "" for name in names}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in found.items()}


def room_table() -> str:
    """Returns every subpackage with its floor and its docstring."""
    said, lines = rooms(), ["| floor | subpackage | contents |", "|---|---|---|"]
    for number, floor in enumerate(floors()):
        lines += [f"| {len(floors()) - number - 1} | `{name}` | {said[name]} |" for name in floor]
    return "\n".join(lines) + "\n"


def room_page(room: str, said: str) -> str:
    """Returns the page of a subpackage's API: one mkdocstrings entry for each of its files."""
    paths = sorted(path for path in (PACKAGE / room).rglob("*.py") if not path.name.startswith("_"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return "\n".join([f"# lit_gans.{room}", "", said, "", *(f"::: {module}\n" for module in modules)])


WRITTEN = {ROOT / "README.md": ("gans", gan_table), ROOT / "docs/explain/architecture.md": ("rooms", room_table)}


def written(path: Path) -> str:
    """Returns the text of a file with its table as it should be."""
    name, table = WRITTEN[path]
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = path.read_text().partition(begin)
    return f"{before}{begin}{table()}{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for file in WRITTEN:
        file.write_text(written(file))
