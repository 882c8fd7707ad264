"""Summary of a sweep: a table and an image of all runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from lit_gans.cli.tables import markdown

_INCHES, _TITLE = 3.2, 0.3  # of each run's samples in the image, and of its name, of 100 pixels
_COLUMNS = 8


@dataclass
class Run:
    """One run of a sweep.

    Args:
        overrides: overrides on its command line.
        values: measured values by name.
        folder: folder of the run.
        samples: path of the last grid, which may not exist.
    """

    overrides: list[str]
    values: dict[str, float]
    folder: Path
    samples: Path


def write_summary(runs: list[Run], folder: Path) -> list[str]:
    """Writes `table.md` and, if there are grids, `samples.png`; returns a readable summary as lines.

    Where runs differ by their seed alone, a second table has the mean and the standard deviation over the seeds.
    """
    common = set.intersection(*(set(run.overrides) for run in runs))
    columns = list(dict.fromkeys(name for run in runs for name in run.values))
    names: list[str] = []
    by_seed: dict[str, list[Run]] = {}
    for run in runs:
        differs = [text for text in run.overrides if text not in common]
        names.append(_name(differs))
        group = _name([text for text in differs if not text.startswith("seed=")])
        by_seed.setdefault(group or "all", []).append(run)
    values = ([_number(run.values.get(column)) for column in columns] for run in runs)
    rows = [[name, *own] for name, own in zip(names, values, strict=True)]
    lines = markdown([["run", *columns], *rows])
    if len(by_seed) < len(runs):
        rows = [[name, *(_mean(own, column) for column in columns)] for name, own in by_seed.items()]
        lines += ["", "mean ± standard deviation over the seeds", "", *markdown([["run", *columns], *rows])]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    grids = [(name, run.samples) for name, run in zip(names, runs, strict=True) if run.samples.is_file()]
    if grids:
        _side_by_side(grids, folder / "samples.png")
        lines.append(f"side by side: {folder / 'samples.png'}")
    return lines


def _name(overrides: list[str]) -> str:
    return " ".join(text.removeprefix("experiment=") for text in overrides)


def _mean(runs: list[Run], column: str) -> str:
    values = [run.values[column] for run in runs if column in run.values]
    if len(values) < 2:
        return _number(values[0] if values else None)
    return f"{_number(float(np.mean(values)))} ± {np.std(values, ddof=1):.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _side_by_side(grids: list[tuple[str, Path]], path: Path) -> None:
    """Saves grids in rows, each below its name."""
    columns = min(len(grids), _COLUMNS)
    rows = math.ceil(len(grids) / columns)
    figure = Figure(figsize=(_INCHES * columns, (_INCHES + _TITLE) * rows))
    for number, (name, grid) in enumerate(grids):
        row, column = divmod(number, columns)
        left, bottom = (column + 0.03) / columns, (rows - row - 1) / rows
        axes = figure.add_axes((left, bottom, 0.94 / columns, _INCHES / (_INCHES + _TITLE) / rows))
        with Image.open(grid) as image:
            axes.imshow(image.convert("RGB"))
        axes.set_title(name, fontsize="small", wrap=True)
        axes.axis("off")
    figure.savefig(path)
