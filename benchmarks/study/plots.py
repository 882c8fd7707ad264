"""Plots of the study, and a film of trainings side by side."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter
from PIL import Image, ImageDraw

from benchmarks import scaling_study
from benchmarks.study import tables
from benchmarks.study.tables import DEVICES, SCORES, SHARES, Rows, measured, medians, runs

Picture = tuple[str, str, bytes]  # title, kind of file, and its content
Points = Sequence[tuple[float, float]]


def _axes() -> Axes:
    return Figure((6.4, 4.0), layout="constrained").subplots()


def _finished(title: str, axes: Axes) -> Picture:
    """Returns a plot as a picture, with its title, and its legend beside it."""
    drawn = axes.get_figure(root=True)
    assert drawn is not None
    axes.set_title(textwrap.fill(title, 60), fontsize="medium")
    if axes.get_legend_handles_labels()[0]:
        drawn.legend(loc="outside right upper", fontsize="small")
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):  # text as text, and the same file every time
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return title, "svg", file.getvalue()


def _logarithmic(axes: Axes, name: str, values: Sequence[float]) -> None:
    """Makes an axis logarithmic with plain numbers beside it: those of the values, if they are few whole ones."""
    numbers = sorted(set(values))
    few = len(numbers) <= 12 and numbers[-1] < 10_000 and all(float(number).is_integer() for number in numbers)
    if not few and numbers[-1] < 5 * numbers[0]:
        return
    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(numbers) if few else LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def _lines(
    title: str, curves: Mapping[str, Points], x: str, y: str, log: str = "", dashed: Mapping[str, Points] | None = None
) -> Picture:
    """Draws curves, and others to compare with in the color of the curve with the same label."""
    axes = _axes()
    for label, points in curves.items():
        (line,) = axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
        if dashed:
            other = zip(*sorted(dashed[label]), strict=True)
            axes.plot(*other, linestyle="--", alpha=0.6, color=line.get_color())
    shown = [point for points in (*curves.values(), *(dashed or {}).values()) for point in points]
    for index, name in enumerate("xy"):
        if name in log:
            _logarithmic(axes, name, [point[index] for point in shown])
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return _finished(title, axes)


def _curves(frame: pd.DataFrame, label: str, x: str, y: str) -> dict[str, Points]:
    return {str(name): list(zip(own[x], own[y], strict=True)) for name, own in frame.groupby(label, sort=False)}


def batch(rows: Rows) -> Iterator[Picture]:
    """Yields plots of images per second by batch size."""
    found = medians(measured(rows, "batch"), "device", "gan", "batch_size")
    for device, own in found.groupby("device", sort=False):
        curves = _curves(own, "gan", "batch_size", "generator_images_per_second")
        yield _lines(f"Images per second on {device}", curves, "batch size", "images/s", "xy")


def scaling(rows: Rows) -> Iterator[Picture]:
    """Yields plots of images per second by number of processes.

    The processes on a CPU share its cores, so that all of them together are ideally as fast as one.
    """
    found = tables.scaling_medians(rows)
    shared = (measured(rows, "scaling")["device"] == "cpu").all()
    for kind, own in found.groupby("kind", sort=False):
        curves = _curves(own, "gan", "ranks", "generator_images_per_second")
        ideal = _curves(own.assign(ideal=own["one"] * (1 if shared else own["ranks"])), "gan", "ranks", "ideal")
        title = f"{str(kind).capitalize()} scaling, dashed: nothing lost"
        yield _lines(title, curves, "processes", "images/s", "xy", ideal)


def overlap(rows: Rows) -> Iterator[Picture]:
    """Yields plots of the milliseconds of a step."""
    steps = tables.median_steps(rows).set_index("cell")
    axes = _axes()
    (100 * steps[list(SHARES)].div(steps["sum"], axis=0)).plot.bar(stacked=True, ax=axes, legend=False)
    axes.set(xlabel="", ylabel="% of a step")
    yield _finished("Shares of a step, by GAN and number of processes", axes)


def optimizations(rows: Rows) -> Iterator[Picture]:
    """Yields plots of the speed of each setting."""
    found = tables.relative_speeds(rows).dropna(subset="ratio")
    for gan, own in found.groupby("gan", sort=False):
        axes = _axes()
        axes.barh(own["variant"][::-1], own["ratio"][::-1])
        axes.axvline(1, color="black", linewidth=0.8)
        axes.get_figure(root=True).set_figheight(1 + 0.19 * len(own))  # type: ignore[union-attr]
        axes.margins(y=0.01)
        axes.tick_params(axis="y", labelsize="small")
        axes.set(xlabel="speed relative to the baseline")
        yield _finished(f"Speed of {gan} relative to its baseline", axes)


def deepspeed(rows: Rows) -> Iterator[Picture]:
    """Yields plots of the seconds of an epoch of CelebA."""
    found = medians(measured(rows, "deepspeed"), "loop", "ranks")
    found = found.assign(epoch=found.apply(tables.epoch, axis=1))
    curves = _curves(found, "loop", "ranks", "epoch")
    yield _lines("Seconds an epoch", curves, "processes", "seconds an epoch", "xy")


def lightweight(rows: Rows) -> Iterator[Picture]:
    """Yields plots of speed and FID by number of parameters."""
    found = medians(measured(rows, "lightweight"), "block", "multiplier")
    curves = _curves(found, "block", "parameters", "images_per_second")
    yield _lines("Speed of blocks and widths", curves, "parameters", "images/s", "x")


def dual(rows: Rows) -> Iterator[Picture]:
    """Yields plots of scores by iterations and by seconds, and a film of samples."""
    for data, frame in measured(rows, "dual").groupby("data", sort=False):
        for size, of_size in frame.groupby("batch_size", sort=False):
            for key, (name, _) in SCORES[str(data)].items():
                for x, label in (("iteration", "iterations"), ("s", "seconds of training")):
                    title = f"{name} on {data} by {label}, batch {size}"
                    yield _bands(title, of_size, (x, label), (key, name))
        frames = {row["gan"]: row["frames"] for _, row in frame.iterrows() if row.get("frames")}
        if frames:
            yield f"The trainings on {data} side by side", "gif", film(frames)


def _bands(title: str, own: pd.DataFrame, x: tuple[str, str], y: tuple[str, str]) -> Picture:
    """Draws a score of each GAN: the median of the seeds, and the band of all of them."""
    axes, everything = _axes(), []
    for _, gan, seeds in runs(own):
        points = list(zip(*seeds["points"], strict=False))
        xs = [median(point[x[0]] for point in each) for each in points]
        values = [[point[y[0]] for point in each] for each in points]
        (line,) = axes.plot(xs, list(map(median, values)), marker="o", label=gan)
        axes.fill_between(xs, list(map(min, values)), list(map(max, values)), color=line.get_color(), alpha=0.2)
        everything += [value for each in values for value in each]
    if y[1] == "FID":
        _logarithmic(axes, "y", everything)
    axes.set(xlabel=x[1], ylabel=y[1])
    axes.grid(alpha=0.3)
    return _finished(title, axes)


def film(runs: Mapping[str, Sequence[str]]) -> bytes:
    """Returns a GIF with the frames of all runs, PNGs in base64, side by side below their names."""
    sheets = []
    for frames in zip(*runs.values(), strict=False):
        images = [Image.open(io.BytesIO(base64.b64decode(frame))).convert("RGB") for frame in frames]
        sheet = Image.new("RGB", (sum(image.width + 8 for image in images), 14 + images[0].height), "white")
        left = 0
        for name, image in zip(runs, images, strict=True):
            ImageDraw.Draw(sheet).text((left, 1), name, fill="black")
            sheet.paste(image, (left, 14))
            left += image.width + 8
        sheets.append(sheet)
    file = io.BytesIO()
    times = [500] * (len(sheets) - 1) + [2000]  # milliseconds
    sheets[0].save(file, "GIF", save_all=True, append_images=sheets[1:], duration=times, loop=0)
    return file.getvalue()


def projection(rows: Rows) -> Iterator[Picture]:
    """Yields plots of predicted and measured images per second."""
    cluster = scaling_study.calibrate(scaling_study.POINTS)
    points = [point for point in scaling_study.POINTS if point.kind == "weak"]
    known: dict[str, Points] = {
        point.gan: [(1, scaling_study.ONE_NODE[point.gan][128]), (point.nodes, point.images_per_second)]
        for point in points
    }
    predicted: dict[str, Points] = {
        gan: [(n, scaling_study.predicted(scaling_study.Point(gan, "weak", n, 1.0), cluster)) for n in DEVICES]
        for gan in known
    }
    title = "Weak scaling of the study's GPUs: measured, and predicted up to 1,024 (dashed)"
    yield _lines(title, known, "nodes", "images/s", "xy", predicted)
    axes = _axes()
    found = tables.predictions(rows).set_index("cell")[["measured", "predicted"]]
    found.rename(lambda name: textwrap.fill(name, 16)).plot.bar(ax=axes, rot=0, fontsize="small", legend=False)
    axes.set(xlabel="", ylabel="images/s")
    yield _finished("Predicted and measured here", axes)
