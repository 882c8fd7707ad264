"""Hooks of the site: pages that are generated at every build, so that no copy of the code goes stale."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # the files beside this one, and lit_gans

import architecture  # noqa: E402
import generate  # noqa: E402

_TEST = re.compile(r"^<!-- test: .*? -->\n", flags=re.M | re.S)  # what the tests do with the block below
_API = "reference/api"


def on_config(config: Any) -> Any:
    """Lists one API page for each subpackage in the navigation."""
    (reference,) = (entry["Reference"] for entry in config["nav"] if "Reference" in entry)
    reference.append({"API": [{room: f"{_API}/{room}.md"} for room in sorted(architecture.rooms())]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages and the picture."""
    pages = {
        "reference/cli.md": generate.cli_reference(),
        "reference/configuration.md": generate.configuration_reference(),
        "changelog.md": (generate.ROOT / "CHANGELOG.md").read_text(),
        **{f"{_API}/{room}.md": generate.room_page(room, said) for room, said in architecture.rooms().items()},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    picture = io.BytesIO()
    architecture.draw(picture, file_format="svg")
    files.append(File.generated(config, "explain/architecture.svg", content=picture.getvalue()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the marks of generated tables by the tables, and removes what is said to the tests alone."""
    tables = {"gans": _gans, "groups": generate.group_table, "rooms": architecture.table}
    for name, table in tables.items():
        mark = f"<!-- generated: {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, table())
    return _TEST.sub("", markdown)


def _gans() -> str:
    return re.sub(r"\[(`\w+`)\]\([^)]*\)", r"\1", generate.gan_table())
