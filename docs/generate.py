"""What the README and the site show of the code: tables of GANs and subpackages, commands and keys.

`python -m docs.generate` writes the tables of the GANs, of the subpackages and of the results, which are read in the
repository too. Everything else is made at every build of the site, of which this file is the hook.
"""

from __future__ import annotations

import ast
import base64
import importlib
import json
import os
import re
import statistics
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

from lit_gans.cli.help import as_typed

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lit_gans"
_TEST = re.compile(r"^<!-- test: .*? -->\n", flags=re.M | re.S)  # what the tests do with the block below
NOTEBOOKS = ("quickstart", "compare_gans", "scaling")
_SITE = "https://github.com/lit-gans/lit_gans/blob/main"


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages, with the file that an edit of each begins with."""
    pages = {
        "reference/cli.md": (cli_reference(), "lit_gans/cli/commands"),
        "reference/configuration.md": (configuration_reference(), "lit_gans"),
        "contributing.md": (contributing(), "CONTRIBUTING.md"),
    }
    for path, (text, source) in pages.items():
        file = File.generated(config, path, content=text)
        file.edit_uri = f"../{source}"
        files.append(file)
    for name in NOTEBOOKS:
        text, pictures = notebook_page(name)
        file = File.generated(config, f"tutorials/{name}.md", content=text)
        file.edit_uri = f"../notebooks/{name}.ipynb"
        for place, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{place}", content=content))
        files.append(file)
    files.append(
        File.generated(config, "studies/report.html", abs_src_path=str(ROOT / "benchmarks/recorded/report.html"))
    )
    return files


def notebook_page(name: str) -> tuple[str, dict[str, bytes | str]]:
    """Returns a notebook as a page with its stored outputs, and the pictures of these by their paths."""
    notebook = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text())
    parts: list[str] = []
    pictures: dict[str, bytes | str] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(
            source.replace("](../docs/", "](../") if cell["cell_type"] == "markdown" else _fenced(source, "python")
        )
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/markdown" in data:
                parts.append("".join(data["text/markdown"]))
            elif "image/svg+xml" in data or "image/png" in data:
                drawn = "image/svg+xml" in data
                place = f"{name}/{len(pictures)}.{'svg' if drawn else 'png'}"
                pictures[place] = "".join(data["image/svg+xml"]) if drawn else base64.b64decode(data["image/png"])
                parts.append(f"![Output of the cell above]({place})")
            else:
                parts.append(_fenced("".join(output.get("text") or data["text/plain"]), "text"))
    return "\n\n".join(parts), pictures


def _fenced(code: str, language: str) -> str:
    return f"```{language}\n{code.rstrip()}\n```"


def contributing() -> str:
    """Returns CONTRIBUTING.md with links as they are from the site's root, or to the repository."""
    text = (ROOT / "CONTRIBUTING.md").read_text().replace("](docs/", "](")
    return re.sub(r"\]\((?=benchmarks/)|\]\((?!https?:|#|\S+\.md)", f"]({_SITE}/", text)


_SCORES = {  # columns of the page of results, by the name of a score without its extractor
    **{"fid": "FID", "is": "Inception Score", "kid": "KID", "precision": "precision", "recall": "recall"},
    **{"classes_covered": "classes", "intra_fid": "intra-FID", "class_accuracy": "accuracy"},
    **{"attribute_distance": "attributes", "options_missing": "missing", "l1": "L1"},
    "combinations_known": "known",
}


def results() -> str:
    """Returns all recorded results: a table for each data set and feature extractor, lowest FID first."""
    from benchmarks.record import without_seed  # the site loads this file by its path, without benchmarks

    recorded = json.loads((ROOT / "benchmarks/recorded/results.json").read_text())
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for result in recorded:
        key = tuple(str(result[name]) for name in ("data", "extractor", "num_fake", "num_real", "weights"))
        tables.setdefault(key, []).append(result)
    parts: list[str] = []
    for (data, extractor, num_fake, num_real, weights), rows in tables.items():
        whose = {"ema": "the averaged generator", "raw": "the generator"}[weights]
        titles = {f"{name}{suffix}": title for name, title in _SCORES.items() for suffix in ("", f"_{extractor}")}
        columns = {name: titles[name] for row in rows for name in row["scores"] if name in titles}
        lines = [f"| command | iterations | {' | '.join(columns.values())} |", "|---" * (2 + len(columns)) + "|"]
        runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in rows:
            runs.setdefault((without_seed(row["command"])[0], row["iterations"]), []).append(row)
        fid = f"fid_{extractor}"
        for (command, iterations), seeds in sorted(
            runs.items(), key=lambda item: statistics.fmean(row["scores"].get(fid, 0.0) for row in item[1])
        ):
            if len(seeds) > 1:
                command += f" seed={','.join(str(without_seed(row['command'])[1]) for row in seeds)}"
            else:
                command = seeds[0]["command"]
            typed = command.removeprefix("lit-gans train ")
            values = [_mean([row["scores"][name] for row in seeds if name in row["scores"]]) for name in columns]
            lines.append(f"| `{typed}` | {iterations:,} | {' | '.join(values)} |")
        of_real = f"FID between two halves of the real images: **{rows[0]['halves']:.3g}**."
        if "combinations_by_chance" in rows[0]["scores"]:
            of_real += f" Known combinations by chance: {rows[0]['scores']['combinations_by_chance']:.3g}."
        parts += [
            f"## {data}, by `{extractor}`",
            f"{int(num_fake):,} images of {whose}, {int(num_real):,} real images. {of_real}",
            "\n".join(lines),
        ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _mean(values: list[float]) -> str:
    """Returns the mean, with the sample standard deviation of several values."""
    mean = f"{statistics.fmean(values):.4g}" if values else ""
    if len(values) < 2:
        return mean
    deviation = float(f"{statistics.stdev(values):.2g}")
    return f"{mean} ± {deviation:.0f}" if deviation >= 100 else f"{mean} ± {deviation:g}"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the mark of the table of GANs by the table, and removes what is said to the tests alone."""
    mark = "<!-- generated: gans -->"
    if mark in markdown:
        markdown = markdown.replace(mark, re.sub(r"\[(`\w+`)\]\([^)]*\)", r"\1", gan_table()))
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


Row = tuple[str, str, str]  # of a table of keys: the key, its default, what it means


def key_rows(target: Any, unset: tuple[str, ...] = (), prefix: str = "") -> list[Row]:
    """Returns a row for each argument of a class: key, default from the signature, meaning from the docstring."""
    from lit_gans.config.signatures import meanings, schema

    said = meanings(target if isinstance(target, type) else type(target))  # an option of `optimizer` is a value
    rows: list[Row] = []
    for name, value in schema(target).items():
        if name not in ("_target_", *unset):
            default = "required" if value == "???" else f"`{_default(value) or repr(value)}`"
            rows.append((f"`{prefix}{name}`", default, said.get(name, "")))
    return rows


def key_table(rows: list[Row]) -> list[str]:
    """Returns the lines of a table of keys."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["| key | default | meaning |", "|---|---|---|", *lines, ""] if rows else ["No keys of its own.", ""]


def shared_rows(rows: dict[str, list[Row]]) -> list[Row]:
    """Returns the keys that have the same meaning in most options, with the most frequent default."""
    defaults: dict[tuple[str, str], Counter[str]] = {}
    for key, default, meaning in (row for of_one in rows.values() for row in of_one):
        defaults.setdefault((key, meaning), Counter())[default] += 1
    most = {pair: found for pair, found in defaults.items() if found.total() > max(2, len(rows) / 2)}
    return [(key, found.most_common(1)[0][0], meaning) for (key, meaning), found in most.items()]


def own_rows(rows: list[Row], shared: list[Row]) -> list[Row]:
    """Returns the keys of an option that are not shared, and of shared ones the default where it is another."""
    known = {(key, meaning) for key, _, meaning in shared}
    return [(*row[:2], "" if (row[0], row[2]) in known else row[2]) for row in rows if row not in shared]


def _default(value: Any) -> str:
    """Returns a default as it is typed; of an optimizer, only what differs from torch's defaults."""
    from lit_gans.config.signatures import schema
    from lit_gans.training.optim import OptimizerConfig

    if not isinstance(value, dict):
        return as_typed(value)
    kind = value.get("_target_", "").rpartition(".")[2]
    usual = schema(OptimizerConfig(value["name"])) if kind == "OptimizerConfig" else {"_target_": value.get("_target_")}
    usual.pop("name", None)
    inside = (f"{name}={_default(item)}" for name, item in value.items() if name not in usual or item != usual[name])
    return f"{kind}({', '.join(inside)})"


def cli_reference() -> str:
    """Returns the page of the command line: a table of the commands, and the help of each."""
    from lit_gans.cli.command import described, names
    from lit_gans.cli.help import command_help, train_help
    from lit_gans.cli.main import overview

    with mock.patch.dict(os.environ, COLUMNS="60"):  # a phone's
        texts = {name: command_help(name) for name in names() if name not in ("train", "fit")}
        texts |= {"train": train_help([]), "fit": "The Lightning CLI on the same classes: lit-gans fit --help"}
    lines = ["# Command line", "", "| command | what it does |", "|---|---|"]
    for command in map(described, names()):
        usage = command.usage.replace("|", r"\|")
        lines.append(f"| `{usage}` | {command.summary} |")
    lines += ["", *overview().split("\n\n")[-1].splitlines(), ""]
    for name in names():
        lines += [f"## lit-gans {name}", "", "```text", texts[name], "```", ""]
    return "\n".join(lines)


def configuration_reference() -> str:
    """Returns the page of every key of every class that a configuration can name."""
    from lit_gans.config.groups import GROUPS, option, options

    lines = [
        "# Configuration keys",
        "",
        "Each group begins with the keys that most of its options share. Below, an option lists only what differs."
        " A default of an optimizer names only what differs from torch's. The keys of `trainer.` are the arguments of"
        " Lightning's `Trainer`. `lit-gans train --cfg job` prints all keys of a run with their values.",
        "",
    ]
    for name, group in GROUPS.items():
        place = f"{name}/_schema" if group.has_files else name
        members = {key: cls for key in options(place) if (cls := option(f"{place}/{key}"))}
        if name == "trainer" or not members:
            continue
        prefix = f"{group.node or name}." if name in ("model", "data", "strategy") else ""
        unset = (*group.unset, *(group.shared if name == "model" else ()))
        rows = {key: key_rows(cls, unset, prefix) for key, cls in sorted(members.items()) if _is_ours(cls)}
        shared = shared_rows(rows)
        lines += [f"## {name}", "", f"{'; '.join(group.places.values())}.", ""]
        if shared:
            lines += [f"### {name}, most options {{ #{name}-shared }}", "", *key_table(shared)]
        others = [f"`{key}` (`{cls.__name__}`)" for key, cls in sorted(members.items()) if not _is_ours(cls)]
        lines += [f"The keys of {', '.join(others)} are the arguments of Lightning's classes.", ""] if others else []
        for key, of_one in rows.items():
            lines += [f"### {name} {key} {{ #{name}-{key} }}", "", f"{first_sentence(members[key].__doc__)}.", ""]
            own = {key for key, _, _ in of_one}
            lacks = [key for key, _, _ in shared if key not in own]
            lines += [f"It has no {', '.join(lacks)}.", ""] if lacks else []
            lines += key_table(own_rows(of_one, shared))
    return "\n".join(lines)


def _is_ours(member: Any) -> bool:
    return (member if isinstance(member, type) else type(member)).__module__.startswith("lit_gans.")


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


WRITTEN = {
    ROOT / "README.md": ("gans", gan_table),
    ROOT / "docs/explain/architecture.md": ("rooms", room_table),
    ROOT / "docs/results.md": ("results", results),
}


def written(path: Path) -> str:
    """Returns the text of a file with its table as it should be."""
    name, table = WRITTEN[path]
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = path.read_text().partition(begin)
    return f"{before}{begin}{table()}{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for file in WRITTEN:
        file.write_text(written(file))
