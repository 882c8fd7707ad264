"""Plots of the report as SVG, with one style for all parts."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lit_gans.benchmark.study.contract import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)
Points = Sequence[tuple[float, float]]


def figure(columns: int = 1) -> Figure:
    """Returns an empty figure of some plots side by side; needs no display.

    Args:
        columns: number of plots.
    """
    from matplotlib.figure import Figure  # not at the top: it imports slowly

    drawn = Figure((_SIZE[0] * columns, _SIZE[1]), layout="constrained")
    drawn.subplots(1, columns)
    return drawn


def picture(title: str, drawn: Figure) -> Picture:
    """Returns a figure as a picture of the report."""
    from matplotlib import rc_context  # see `figure`

    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):  # text as text, and the same file every time
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return Picture(title, file.getvalue())


def lines(
    title: str,
    curves: Mapping[str, Points],
    x: str,
    y: str,
    log: str = "",
    dashed: Mapping[str, Points] | None = None,
) -> Picture:
    """Returns a picture of curves.

    Args:
        title: heading.
        curves: points of each curve by its label.
        x, y: labels of the axes.
        log: axes that are logarithmic: `x`, `y`, `xy` or none.
        dashed: curves to compare with, such as ideal ones, in the colour of the curve with the same label.
    """
    drawn = figure()
    (axes,) = drawn.axes
    colours = {}
    for label, points in curves.items():
        (line,) = axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
        colours[label] = line.get_color()
    for label, points in (dashed or {}).items():
        own = {"color": colours[label]} if label in colours else {"label": label}
        axes.plot(*zip(*sorted(points), strict=True), linestyle="--", alpha=0.6, **own)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        axes.set_yscale("log")
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return picture(title, drawn)


def stacked(title: str, shares: Mapping[str, Mapping[str, float]], y: str) -> Picture:
    """Returns a picture of stacked bars.

    Args:
        title: heading.
        shares: values of each bar by their labels, by the name of the bar.
        y: label of the axis.
    """
    drawn = figure()
    (axes,) = drawn.axes
    below = [0.0] * len(shares)
    for label in next(iter(shares.values())):
        values = [bar[label] for bar in shares.values()]
        axes.bar(list(shares), values, bottom=below, label=label)
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.set(ylabel=y, title=title)
    axes.tick_params(axis="x", labelrotation=45, labelsize="small")
    axes.legend(fontsize="small")
    return picture(title, drawn)
