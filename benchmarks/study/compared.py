"""Tables and plots of trainings of several GANs on the same data: after as many images, and after as many seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measure import MEBIBYTE
from benchmarks.study.contract import Picture, Result, Table
from benchmarks.study.judges import judge_of
from benchmarks.study.plotting import figure, finished, logarithmic

_SLACK = 1.1  # the level to reach is this many times worse than the worst last one, so that each run reaches it
_MEDIAN = "Median of the seeds, and their range."
_WHICH = ("last", "best")  # measurement
LIMITS = {"images": "images", "s": "seconds"}  # what is counted in each point, and the setting that limits it
Points = Sequence[Mapping[str, float]]


def by_data(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Returns the results that were measured, by the name of their data."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.repeats:
            found.setdefault(result.settings.get("data", "digits"), []).append(result)
    return found


def runs(results: Sequence[Result]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Returns what the seeds of each batch size and GAN measured, in the order of their cells."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for result in results:
        found.setdefault((result.settings["batch_size"], result.settings["gan"]), []).append(result.repeats[0])
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def after(unit: str, data: str, results: Sequence[Result]) -> Table:
    """Compares the trainings after as many real images, or seconds of training, as all of them have.

    Args:
        unit: `images` or `s`.
        data: name of the data.
        results: results on these data.
    """
    judge = judge_of(data)
    limit = results[0].settings[LIMITS[unit]]
    columns = ["GAN", "batch", *(f"{score.name}, {which}" for score in judge.scores.values() for which in _WHICH)]
    rows = []
    for (batch_size, gan), found in runs(results).items():
        until = [_until(run["points"], unit, limit) for run in found]
        row = [gan, str(batch_size)]
        for key, score in judge.scores.items():
            row.append(_spread([points[-1][key] for points in until]))
            row.append(_spread([score.best(point[key] for point in points) for points in until]))
        if unit == "s":
            row.append(f"{statistics.median(points[-1]['images'] / points[-1]['s'] for points in until):.0f}")
            row.append(f"{statistics.median(run['memory'] for run in found) / MEBIBYTE:.0f}")
        rows.append(row)
    notes = [f"{_MEDIAN} last, best: of the measurements until then. {judge.note}"]
    if unit == "s":
        columns += ["images/s", "MiB"]
        notes.append("images/s: real images of all critic steps. MiB: peak memory of the training.")
    title = f"After {limit:,} real images" if unit == "images" else f"After {limit:g} s of training"
    return Table(f"{title}: {data}", columns, rows, notes)


def _until(points: Points, unit: str, limit: float) -> Points:
    """Returns the measurements up to the first one that reaches the limit, where a measurement was due."""
    reached = next(index for index, point in enumerate(points) if point[unit] >= limit)
    return points[: reached + 1]


def _spread(values: Sequence[float]) -> str:
    """Returns the median and the range of values."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} .. {max(values):.4g})"


def levels(data: str, results: Sequence[Result]) -> dict[int, float]:
    """Returns the score whose time is compared, by batch size: one that every run reaches at its end."""
    key, score = next(iter(judge_of(data).scores.items()))
    last: dict[int, list[float]] = {}
    for (batch_size, _), found in runs(results).items():
        last.setdefault(batch_size, []).extend(run["points"][-1][key] for run in found)
    slack = _SLACK if score.better == "min" else 1 / _SLACK
    return {batch_size: slack * score.worst(values) for batch_size, values in last.items()}


def at_the_end(data: str, results: Sequence[Result]) -> Table:
    """Describes the end of each training, and when it reached a score that all of them reach."""
    judge = judge_of(data)
    first = judge.scores[judge.headline]
    names = [score.name for score in judge.scores.values()]
    columns = ["GAN", "batch", "seeds", *names, f"{first.name} to reach", "s until", "steps until"]
    rows, reach = [], levels(data, results)
    for (batch_size, gan), found in runs(results).items():
        level = reach[batch_size]
        ends = [run["points"][-1] for run in found]
        reached = [
            next(point for point in run["points"] if first.reaches(point[judge.headline], level)) for run in found
        ]
        rows.append(
            [
                gan,
                str(batch_size),
                str(len(found)),
                *(_spread([end[key] for end in ends]) for key in judge.scores),
                f"{level:.4g}",
                f"{statistics.median(point['s'] for point in reached):.1f}",
                f"{statistics.median(point['iteration'] for point in reached):.0f}",
                *_busy([run["utilization"] for run in found]),
            ]
        )
    note = (
        f"{_MEDIAN} Seconds are those of training. {first.name} to reach: {_SLACK} times worse than the worst last one"
        f" of this batch size. processor: busy cores; waiting for data beside it. {judge.note}"
    )
    return Table(f"At the end: {data}", [*columns, "processor", "device"], rows, [note])


def _busy(utilization: Sequence[Mapping[str, float]]) -> list[str]:
    busy, waiting, device = (
        statistics.median(each.get(f"utilization/{key}", -1) for each in utilization)
        for key in ("processor", "waiting", "device")
    )
    return [f"{busy:.2f} ({100 * waiting:.1f} % waiting)", "not told here" if device < 0 else f"{100 * device:.0f} %"]


def curves(data: str, results: Sequence[Result]) -> list[Picture]:
    """Draws each score by iterations and by seconds: the median of the seeds, and the band of all of them."""
    judge, found = judge_of(data), runs(results)
    pictures = []
    for batch_size in dict.fromkeys(batch_size for batch_size, _ in found):
        own = {gan: [run["points"] for run in each] for (size, gan), each in found.items() if size == batch_size}
        for key, score in judge.scores.items():
            for x, label in (("iteration", "iterations"), ("s", "seconds of training")):
                title = f"{score.name} on {data} by {label}, batch {batch_size}"
                pictures.append(_curve(title, own, (x, label), (key, score.name)))
    return pictures


def _curve(title: str, own: Mapping[str, Sequence[Points]], x: tuple[str, str], y: tuple[str, str]) -> Picture:
    drawn = figure()
    (axes,) = drawn.axes
    for gan, seeds in own.items():
        rows = list(zip(*seeds, strict=False))
        xs = [statistics.median(point[x[0]] for point in row) for row in rows]
        values = [[point[y[0]] for point in row] for row in rows]
        (line,) = axes.plot(xs, [statistics.median(row) for row in values], marker="o", label=gan)
        low, high = [min(row) for row in values], [max(row) for row in values]
        axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.2)
    if y[1] == "FID":
        logarithmic(axes, "y", [point[y[0]] for seeds in own.values() for points in seeds for point in points])
    axes.set(xlabel=x[1], ylabel=y[1])
    axes.grid(alpha=0.3)
    return finished(title, axes)
