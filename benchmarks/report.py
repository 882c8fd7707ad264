"""Report of the benchmarks: tables and notes, a line of JSON, and an optional JSON file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 140  # of tables where there is no terminal


def report(result: dict[str, Any], tables: Sequence[Table], notes: Sequence[str], output: str | None) -> dict[str, Any]:
    """Prints and writes the result of a benchmark, and returns it.

    Args:
        result: content of the JSON.
        tables, notes: tables and notes to print before the line of JSON.
        output: optional JSON file to write.
    """
    show(tables)
    print(*notes, json.dumps(result), sep="\n")
    if output is not None:
        path = Path(output)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
    return result


def show(tables: Sequence[Table]) -> None:
    """Prints tables to stdout."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for table in tables:
        console.print(table)


def markdown_rows(rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns a table, whose first row has the headings, as lines of Markdown."""
    escaped = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    head, *others = (f"| {' | '.join(row)} |" for row in escaped)
    return [head, f"|{'---|' * len(rows[0])}", *others]


def markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Returns tables and notes as Markdown, for a page of the documentation."""
    pieces = []
    for table in tables:
        columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
        pieces.append("\n".join([f"{table.title}:\n", *markdown_rows([*zip(*columns, strict=True)])]))
    return "\n\n".join([*pieces, "\n".join(f"- {note}" for note in notes)]) + "\n"


def table_of(title: str, *columns: str) -> Table:
    """Returns an empty table with a column of names and columns of numbers."""
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def median(values: dict[str, float], style: str = ".0f", scale: float = 1) -> str:
    """Returns the median of a spread as text."""
    return f"{scale * values['median']:{style}}"


def quartiles(values: dict[str, float], style: str = ".0f", scale: float = 1) -> str:
    """Returns the quartiles of a spread as text."""
    return f"{scale * values['lower_quartile']:{style}} .. {scale * values['upper_quartile']:{style}}"
