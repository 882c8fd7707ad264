"""Plots of the report as SVG, with one style for all parts."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from benchmarks.study.contract import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)
_TITLE = 60  # characters of a line
_FEW, _LARGE = 12, 10_000  # as few numbers, and none as large, are ticks themselves
_WIDE = 5  # a logarithmic axis has a range of at least this factor
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
        dashed: curves to compare with, such as ideal ones, in the color of the curve with the same label.
    """
    drawn = figure()
    (axes,) = drawn.axes
    colors = {}
    for label, points in curves.items():
        (line,) = axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
        colors[label] = line.get_color()
    for label, points in (dashed or {}).items():
        own = {"color": colors[label]} if label in colors else {"label": label}
        axes.plot(*zip(*sorted(points), strict=True), linestyle="--", alpha=0.6, **own)
    shown = [point for points in (*curves.values(), *(dashed or {}).values()) for point in points]
    if "x" in log:
        logarithmic(axes, "x", [point[0] for point in shown])
    if "y" in log:
        logarithmic(axes, "y", [point[1] for point in shown])
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return finished(title, axes)


def finished(title: str, axes: Axes) -> Picture:
    """Returns the picture of the only plot of a figure, with its title, and its legend beside it.

    Args:
        title: heading, wrapped.
        axes: the plot.
    """
    drawn = axes.get_figure(root=True)
    assert drawn is not None
    axes.set_title(textwrap.fill(title, _TITLE), fontsize="medium")
    drawn.legend(loc="outside right upper", fontsize="small")
    return picture(title, drawn)


def logarithmic(axes: Axes, name: Literal["x", "y"], values: Sequence[float]) -> None:
    """Makes an axis logarithmic, if the values have so wide a range, with plain numbers beside it.

    Args:
        axes: the plot.
        name: axis.
        values: all values on it; a few that are not large get ticks of their own.
    """
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator, StrMethodFormatter

    numbers = sorted(set(values))
    few = len(numbers) <= _FEW and numbers[-1] < _LARGE and all(float(number).is_integer() for number in numbers)
    if not few and numbers[-1] < _WIDE * numbers[0]:
        return
    if name == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(numbers) if few else LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


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
    axes.set(ylabel=y)
    axes.tick_params(axis="x", labelrotation=90, labelsize="small")
    return finished(title, axes)


def grouped(title: str, values: Mapping[str, Sequence[float]], names: Sequence[str], y: str) -> Picture:
    """Returns a picture of groups of bars side by side, on a logarithmic axis if their heights need it.

    Args:
        title: heading.
        values: heights of the bars by their label, one for each group.
        names: names of the groups.
        y: label of the axis.
    """
    drawn = figure()
    (axes,) = drawn.axes
    width = 0.8 / len(values)
    for index, (label, heights) in enumerate(values.items()):
        axes.bar([place + index * width for place in range(len(names))], heights, width, label=label)
    middle = (len(values) - 1) * width / 2
    axes.set_xticks([place + middle for place in range(len(names))], [textwrap.fill(name, 16) for name in names])
    axes.tick_params(axis="x", labelsize="small")
    logarithmic(axes, "y", [height for heights in values.values() for height in heights])
    axes.set(ylabel=y)
    return finished(title, axes)
