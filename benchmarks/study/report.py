"""The report of a study: one Markdown file with its pictures beside it, and one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import markdown_rows
from benchmarks.study.contract import Part, Picture, Result, Table

_TITLE = "GAN training on this machine"
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:14px;font-variant-numeric:tabular-nums}
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td:first-child,th:first-child{text-align:left}
figure{display:inline-block;margin:1em}img{max-width:100%}figcaption{font-size:14px}"""
_TYPES = {"svg": "image/svg+xml", "png": "image/png", "gif": "image/gif"}


@dataclass(frozen=True)
class Section:
    """What the report says about one part."""

    name: str
    title: str
    text: str
    tables: Sequence[Table] = field(default_factory=list)
    pictures: Sequence[Picture] = field(default_factory=list)


def sections(parts: Mapping[str, Part], results: Mapping[str, Sequence[Result]]) -> list[Section]:
    """Returns the sections of all parts that have results.

    Args:
        parts: all parts by name, in the order of the report.
        results: results by the name of the part.
    """
    found = []
    for name, part in parts.items():
        if name not in results:
            continue
        tables = [table for table in part.tables(results) if table.rows]
        missing = _missing(results[name])
        found.append(
            Section(name, part.title, part.question, [*tables, *([missing] if missing else [])], part.plots(results))
        )
    return found


def _missing(results: Sequence[Result]) -> Table | None:
    """Returns the table of the cells without a measurement."""
    rows = []
    for result in results:
        if not result.repeats:
            text = (result.reason or "not measured yet").strip()
            rows.append([result.cell.name, f"failed: {text.splitlines()[-1]}" if result.failed else text])
    return Table("Not measured here", ["cell", "reason"], rows) if rows else None


def about(stamp: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Table]:
    """Returns the tables of the machine and of the settings."""
    machine = Table("Machine", ["", ""], [[name, str(value)] for name, value in stamp.items()])
    chosen = Table("Settings", ["", ""], [[name, str(value)] for name, value in settings.items()])
    return [machine, chosen]


def write(folder: Path, found: Sequence[Section], stamp: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Path]:
    """Writes `report.md`, its pictures and `report.html`; returns the paths of the two reports."""
    markdown, texts = folder / "report.md", [f"# {_TITLE}", ""]
    for section in _pages(found, stamp, settings):
        texts += _section_as_markdown(section, folder)
    markdown.write_text("\n".join(texts) + "\n")
    return [markdown, write_page(folder / "report.html", found, stamp, settings)]


def write_page(path: Path, found: Sequence[Section], stamp: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Writes the report as one HTML file with everything in it, and returns its path."""
    body = [f"<h1>{html.escape(_TITLE)}</h1>"]
    for section in _pages(found, stamp, settings):
        body += _section_as_html(section)
    head = f'<meta charset="utf-8"><title>{html.escape(_TITLE)}</title><style>{_STYLE}</style>'
    path.write_text(
        f'<!doctype html><html lang="en"><head>{head}</head><body>\n' + "\n".join(body) + "\n</body></html>\n"
    )
    return path


def _pages(found: Sequence[Section], stamp: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Section]:
    return [Section("machine", "Machine and settings", "", about(stamp, settings)), *found]


def _section_as_markdown(section: Section, folder: Path) -> list[str]:
    lines = [f"## {section.title}", "", *([section.text, ""] if section.text else [])]
    for table in section.tables:
        lines += [f"### {table.title}", "", *markdown_table(table), "", *(f"{note}\n" for note in table.notes)]
    for picture in section.pictures:
        name = f"{section.name}_{re.sub(r'[^a-z0-9]+', '_', picture.title.lower()).strip('_')}.{picture.kind}"
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        (folder / "pictures" / name).write_bytes(picture.data)
        lines += [f"![{picture.title}](pictures/{name})", ""]
    return lines


def markdown_table(table: Table) -> list[str]:
    """Returns a table as lines of Markdown."""
    return markdown_rows([table.columns, *table.rows])


def _section_as_html(section: Section) -> list[str]:
    lines = [f"<h2>{html.escape(section.title)}</h2>", f"<p>{html.escape(section.text)}</p>"]
    for table in section.tables:
        lines += [f"<h3>{html.escape(table.title)}</h3>", html_table(table)]
        lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
    for picture in section.pictures:
        data = base64.b64encode(picture.data).decode()
        image = f'<img alt="{html.escape(picture.title)}" src="data:{_TYPES[picture.kind]};base64,{data}">'
        lines.append(f"<figure>{image}<figcaption>{html.escape(picture.title)}</figcaption></figure>")
    return lines


def html_table(table: Table) -> str:
    """Returns a table as HTML."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"
