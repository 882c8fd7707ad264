"""The report of a study: one HTML file with a summary, contents, and every table and plot, for desktops and phones."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.study.parts import PARTS, pictures_of, summary, tables_of
from benchmarks.study.tables import Rows, Table

_TITLE = "GAN training on this machine"
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:1em 0;font-size:14px;font-variant-numeric:tabular-nums}
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td:first-child,th:first-child{text-align:left}
summary{font-weight:bold;cursor:pointer}
figure{display:inline-block;margin:1em 0}img{max-width:100%}figcaption{font-size:14px}
@media(max-width:50em){table,tbody,tr,td{display:block}thead{display:none}tr{border-top:1px solid #ccc;padding:.4em 0}
td,td:first-child{border:0;padding:0;text-align:left}td:empty{display:none}
td:not([data-label=""])::before{content:attr(data-label) ": ";color:#666}}"""
_TYPES = {"svg": "image/svg+xml", "gif": "image/gif"}
_CODE = re.compile("`([^`]*)`")
_LONG = 12  # rows: a longer table is folded


def markdown(frame: pd.DataFrame) -> str:
    """Returns a table as Markdown."""
    rows = [
        [str(cell).strip().replace("|", "\\|") for cell in row]
        for row in (frame.columns, *frame.itertuples(index=False))
    ]
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(frame.columns)}", *others])


def html_table(table: Table) -> str:
    """Returns a table as HTML, each of whose cells has the name of its column for narrow windows."""
    names = [html.escape(str(name).strip()) for name in table.frame.columns]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = (
        "".join(
            f'<td data-label="{name}">{_with_code(str(cell).strip())}</td>'
            for name, cell in zip(names, row, strict=True)
        )
        for row in table.frame.fillna("").itertuples(index=False)
    )
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _with_code(text: str) -> str:
    """Returns a text as HTML, with what is between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


def write_page(path: Path, rows: Rows, about: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the report.

    Args:
        path: file to write.
        rows: what was measured.
        about: tables of names and values to end with, by their headings, `Machine` among them.
    """
    said, contents, sections = [], [], []
    for name, found in tables_of(rows).items():
        part = PARTS[name]
        if line := summary(name, found):
            said.append(f'<li><a href="#{name}">{html.escape(part.heading)}</a>: {html.escape(line)}</li>')
        links = (f'<a href="#{name}-{number}">{html.escape(table.title)}</a>' for number, table in enumerate(found))
        contents.append(f'<li><a href="#{name}">{html.escape(part.heading)}</a>: {", ".join(links)}</li>')
        sections += [f'<h2 id="{name}">{html.escape(part.heading)}</h2>', f"<p>{html.escape(part.question)}</p>"]
        for number, table in enumerate(found):
            state = "" if len(table.frame) > _LONG else " open"
            title = f"{html.escape(table.title)} ({len(table.frame)} rows)"
            sections += [f'<details id="{name}-{number}"{state}><summary>{title}</summary>', html_table(table)]
            sections += [*(f"<p>{_with_code(note)}</p>" for note in table.notes), "</details>"]
        for title, kind, data in pictures_of(rows, name):
            image = f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"
            caption = html.escape(title)
            sections.append(f'<figure><img alt="{caption}" src="{image}"><figcaption>{caption}</figcaption></figure>')
    for heading, values in about.items():
        frame = pd.DataFrame([(key, str(value)) for key, value in values.items()], columns=["", " "])
        contents.append(f'<li><a href="#{heading.lower()}">{html.escape(heading)}</a></li>')
        sections += [f'<h2 id="{heading.lower()}">{html.escape(heading)}</h2>', html_table(Table("", frame))]
    on = "{device_name}, {cores} cores, torch {torch}, commit {commit}".format(**about["Machine"])
    lists = [f"<h1>{_TITLE}</h1>", f"<p>{html.escape(on)}</p>", "<h2>Summary</h2>", "<ul>", *said, "</ul>"]
    lists += ["<h2>Contents</h2>", "<ol>", *contents, "</ol>"]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(_TITLE)}</title>'
    )
    body = "\n".join([*lists, *sections])
    page = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n'
    path.write_text(page)
