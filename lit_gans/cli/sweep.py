"""Summary of a sweep: a table and an image of all runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from lit_gans.cli.tables import markdown

_HEIGHT = 320  # height of each run's samples in the image


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
    """Writes `table.md` and, if there are grids, `samples.png`; returns a readable summary as lines."""
    common = set.intersection(*(set(run.overrides) for run in runs))
    names = [" ".join(text.removeprefix("experiment=") for text in run.overrides if text not in common) for run in runs]
    columns = list(dict.fromkeys(name for run in runs for name in run.values))
    rows = [["run", *columns]]
    for name, run in zip(names, runs, strict=True):
        rows.append([name, *(_number(run.values.get(column)) for column in columns)])
    lines = markdown(rows)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    grids = [(name, run.samples) for name, run in zip(names, runs, strict=True) if run.samples.is_file()]
    if grids:
        _side_by_side(grids, folder / "samples.png")
        lines.append(f"side by side: {folder / 'samples.png'}")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _side_by_side(grids: list[tuple[str, Path]], path: Path) -> None:
    pictures = []
    for name, grid in grids:
        with Image.open(grid) as image:
            scaled = image.convert("RGB").resize((round(image.width * _HEIGHT / image.height), _HEIGHT))
        titled = Image.new("RGB", (scaled.width, _HEIGHT + 20), "white")
        titled.paste(scaled, (0, 20))
        ImageDraw.Draw(titled).text((4, 4), name, fill="black")
        pictures.append(titled)
    gap = 8
    joined = Image.new("RGB", (sum(p.width + gap for p in pictures) - gap, _HEIGHT + 20), "white")
    left = 0
    for picture in pictures:
        joined.paste(picture, (left, 0))
        left += picture.width + gap
    joined.save(path)
