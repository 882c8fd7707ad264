"""Self-contained HTML page of a run: samples, sample grids over time, curves, nearest real images, and settings."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from jaxtyping import Float, UInt8
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid, save_image

from lit_gans.callbacks.csv_metrics import read_rows
from lit_gans.callbacks.evaluation import PROTOCOL
from lit_gans.callbacks.samples import GRIDS, grids_in
from lit_gans.data.images import viewable
from lit_gans.report.neighbors import nearest_images

_MAX_SHOWN = 8  # maximum number of sample grids over time, and of samples with nearest real images
_WIDE = 20  # the vertical axis is logarithmic if the largest value exceeds this factor times the smallest value
_LARGE = 256  # images are enlarged to about half of this size in pixels, without smoothing


@dataclass(frozen=True)
class Picture:
    """Image with a caption.

    Args:
        source: PNG file as a data URL.
        caption: caption of the image; may be empty.
    """

    source: str
    caption: str


@dataclass(frozen=True)
class Run:
    """Contents of a run folder, without its checkpoints.

    Args:
        folder: run folder.
        config: resolved configuration of the run.
        rows: rows of `metrics.csv`, with values by column name.
        halves: FID between two halves of the real images, by the column name of the FID.
    """

    folder: Path
    config: dict[str, Any]
    rows: list[dict[str, float]]
    halves: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Reads the configuration, the metrics and their protocols of a run."""
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        rows = [{"step": step, **values} for step, values in read_rows(folder / "metrics.csv").items()]
        return cls(folder, config, rows, _halves(folder / PROTOCOL))

    @property
    def iterations(self) -> int:
        """Number of iterations. A row with losses is of the iteration that begins at its step."""
        ends = (row["step"] + any(name.startswith("loss/") for name in row) for row in self.rows)
        return int(max(ends, default=0))

    def curve(self, name: str) -> tuple[list[float], list[float]]:
        """Returns the iterations and the values of a column."""
        points = [(row["step"], row[name]) for row in self.rows if name in row]
        return [step for step, _ in points], [value for _, value in points]

    def columns(self, prefix: str) -> list[str]:
        """Returns the names of the columns that begin with a prefix, in the order of the file."""
        return list(dict.fromkeys(name for row in self.rows for name in row if name.startswith(prefix)))

    def pictures(self, num: int) -> list[Path]:
        """Returns at most `num` sample grids, evenly spaced over the run, including the first and the last."""
        grids = [*grids_in(self.folder / GRIDS).values()]
        indices = torch.linspace(0, len(grids) - 1, min(num, len(grids))).round().int().unique().tolist()
        return [grids[index] for index in indices]


def page(
    run: Run,
    samples: Float[Tensor, "n c h w"],
    iteration: int,
    by_class: Float[Tensor, "m c h w"] | None = None,
    classes: Sequence[str] = (),
    real: Iterator[UInt8[Tensor, "b c h w"]] | None = None,
    commands: tuple[str, ...] = (),
    credit: str | None = None,
) -> str:
    """Returns the page as HTML.

    Args:
        run: run that the page describes.
        samples: generated images in [0, 1].
        iteration: iteration of the networks that generated `samples` and `by_class`.
        by_class: generated images in [0, 1], with one image per class in every row; None for a generator without
            classes.
        classes: names of the classes.
        real: batches of all real images, among which nearest images are searched; None leaves out the nearest images.
        commands: suggested commands for the run.
        credit: origin and terms of the training images; None if they are unknown.
    """
    over_time = [Picture(_url(path.read_bytes()), f"iteration {int(path.stem):,}") for path in run.pictures(_MAX_SHOWN)]
    neighbors = None
    if real is not None:
        shown = samples[:_MAX_SHOWN]
        images, distances = nearest_images(shown, real, 3)
        neighbors = [
            (_picture(sample, ""), [_picture(near.float() / 255, f"{far:.3f}") for near, far in zip(*row, strict=True)])
            for sample, *row in zip(shown, images, distances, strict=True)
        ]
    names = run.columns("metric/")
    scores = {name.removeprefix("metric/"): run.curve(name) for name in names if "_spread_" not in name}
    losses = {name.removeprefix("loss/"): run.curve(name) for name in run.columns("loss/")}
    environment = Environment(loader=PackageLoader("lit_gans.report", "."), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        title="/".join(run.folder.absolute().parts[-2:]),
        model=_name(run.config.get("model")),
        data=_name(run.config.get("data")),
        iterations=run.iterations,
        iteration=iteration,
        last={
            name: (values[-1], int(steps[-1]), run.halves.get(f"metric/{name}"))
            for name, (steps, values) in scores.items()
        },
        samples=_grid(samples, max(1, round(len(samples) ** 0.5))),
        by_class=None if by_class is None else _grid(by_class, len(classes)),
        classes=", ".join(classes),
        over_time=over_time,
        curves=[_plot(losses, "loss"), *(_plot({name: curve}, name) for name, curve in scores.items())],
        neighbors=neighbors,
        settings=yaml.safe_dump(run.config, sort_keys=False),
        commands=commands,
        credit=credit,
    )


def _halves(path: Path) -> dict[str, float]:
    """Returns the FID between two halves of the real images, by the column name of the FID, from a run's protocols."""
    protocols = {}
    with suppress(OSError, ValueError, TypeError):  # the run has no metrics, or the file is damaged
        protocols = dict(json.loads(path.read_bytes()))
    fids = {name: protocol for name, protocol in protocols.items() if name.startswith("metric/fid_")}
    return {name: protocol["real_halves"] for name, protocol in fids.items() if "real_halves" in protocol}


def _name(node: Any) -> str:
    """Returns the class name of a configuration node, or an empty string if the Lightning CLI stored only arguments."""
    path = node.get("_target_", node.get("class_path", "")) if isinstance(node, dict) else node
    return str(path).rpartition(".")[2]


def _url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _picture(image: Tensor, caption: str) -> Picture:
    file = io.BytesIO()
    times = max(1, _LARGE // 2 // image.shape[-1])
    image = viewable(image[None])[0]
    save_image(image.repeat_interleave(times, -1).repeat_interleave(times, -2), file, format="png")
    return Picture(_url(file.getvalue()), caption)


def _grid(images: Tensor, columns: int) -> Picture:
    return _picture(make_grid(viewable(images.cpu()), nrow=columns), "")


def _plot(curves: dict[str, tuple[list[float], list[float]]], title: str) -> str:
    """Returns a plot as an SVG element, which scales with the page."""
    figure = Figure(figsize=(5, 2.8), layout="constrained")
    axes = figure.add_subplot()
    for name, (steps, values) in curves.items():
        axes.plot(steps, values, label=name, marker="." if len(steps) < 20 else "", linewidth=1.2)
    if len(curves) > 1:
        axes.legend(frameon=False)
    all_values = [value for _, values in curves.values() for value in values]
    if all_values and min(all_values) > 0 and max(all_values) > _WIDE * min(all_values):
        axes.set_yscale("log")
    axes.set_title(title, loc="left")
    axes.set_xlabel("iteration")
    axes.spines[["top", "right"]].set_visible(False)
    file = io.StringIO()
    figure.savefig(file, format="svg")
    text = file.getvalue()
    return text[text.index("<svg") :]
