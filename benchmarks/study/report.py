"""The report of a study: one HTML file with every table and plot in it."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.study.parts import PARTS, pictures_of, tables_of
from benchmarks.study.tables import Rows, Table

_TITLE = "GAN training on this machine"
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:14px;font-variant-numeric:tabular-nums}
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td:first-child,th:first-child{text-align:left}
figure{display:inline-block;margin:1em}img{max-width:100%}figcaption{font-size:14px}"""
_TYPES = {"svg": "image/svg+xml", "gif": "image/gif"}


def markdown(frame: pd.DataFrame) -> str:
    """Returns a table as Markdown."""
    rows = [
        [str(cell).strip().replace("|", "\\|") for cell in row]
        for row in (frame.columns, *frame.itertuples(index=False))
    ]
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(frame.columns)}", *others])


def html_table(table: Table) -> str:
    """Returns a table as HTML."""
    return str(table.frame.to_html(index=False, border=0, na_rep=""))


def write_page(path: Path, rows: Rows, about: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the report.

    Args:
        path: file to write.
        rows: what was measured.
        about: tables of names and values to begin with, by their headings.
    """
    lines = [f"<h1>{html.escape(_TITLE)}</h1>"]
    for heading, values in about.items():
        frame = pd.DataFrame([(name, str(value)) for name, value in values.items()], columns=["", " "])
        lines += [f"<h2>{html.escape(heading)}</h2>", html_table(Table("", frame))]
    for name, found in tables_of(rows).items():
        part = PARTS[name]
        lines += [f"<h2>{html.escape(part.heading)}</h2>", f"<p>{html.escape(part.question)}</p>"]
        for table in found:
            lines += [f"<h3>{html.escape(table.title)}</h3>", html_table(table)]
            lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        for title, kind, data in pictures_of(rows, name):
            image = f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"
            caption = html.escape(title)
            lines.append(f'<figure><img alt="{caption}" src="{image}"><figcaption>{caption}</figcaption></figure>')
    head = f'<meta charset="utf-8"><title>{html.escape(_TITLE)}</title><style>{_STYLE}</style>'
    body = "\n".join(lines)
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n')
