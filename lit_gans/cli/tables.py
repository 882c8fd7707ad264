"""Markdown tables that commands print and write."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of an aligned Markdown table. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    heading, *lines = (f"| {' | '.join(row)} |" for row in padded)
    return [heading, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines]
