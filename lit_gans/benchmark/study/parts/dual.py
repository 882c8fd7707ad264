"""Dual discriminators: FID and Inception Score of DCGAN, D2GAN and D3GAN, or others, by iterations and by time."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from lit_gans.benchmark.measure import peak_process_memory
from lit_gans.benchmark.study.contract import Cell, Part, Picture, Result, Table
from lit_gans.benchmark.study.film import encoded, film
from lit_gans.benchmark.study.plotting import figure, picture
from lit_gans.benchmark.study.settings import Settings
from lit_gans.callbacks.throughput import Throughput, paused
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose
from lit_gans.training.callback import GenerativeCallback

_FID, _IS = "metric/fid_digits", "metric/is_digits"
_NAMES = {_FID: "FID on digit features", _IS: "Inception Score on digits"}
_TILES = 16  # images of a frame of the film
_SLACK = 1.1  # the FID to reach is this many times the worst of the final ones, so that each run reaches it


class Dual(Part):
    """Trains the GANs on the same digits at several batch sizes and with several seeds."""

    title = "Dual discriminators"
    question = (
        "Scores by iterations and by seconds of training (without the measurements), seconds until a given FID, and how"
        " busy processor and device are. The data are digits, the features those of a digit classifier: comparable with"
        " each other, not with the study's FID on 64 features."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        cells = []
        for batch_size in settings.dual_batch_sizes:
            steps = max(settings.evaluations, settings.dual_images // batch_size)
            for gan in settings.dual_gans:
                for seed in settings.seeds:
                    every = max(1, steps // settings.evaluations)
                    values = {
                        "gan": gan,
                        "batch_size": batch_size,
                        "seed": seed,
                        "device": settings.device,
                        "steps": steps,
                        "every": every,
                        "samples": settings.dual_samples,
                        "width": settings.width,
                        "film": batch_size == settings.dual_batch_sizes[0] and seed == settings.seeds[0],
                    }
                    cells.append(Cell("dual", f"{gan}, batch {batch_size}, seed {seed}", values, once=True))
        return cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        trace = Trace(cell.settings["film"])
        with tempfile.TemporaryDirectory() as folder:
            module, data, trainer = build(compose(*_overrides(cell.settings, folder)))
            (throughput,) = (callback for callback in trainer.callbacks if isinstance(callback, Throughput))  # type: ignore[attr-defined]
            trace.throughput = throughput
            trainer.callbacks.append(trace)  # type: ignore[attr-defined]
            trainer.fit(module, datamodule=data)
        values = {"points": trace.points, "frames": trace.frames, "utilisation": throughput.utilisation}
        return {**values, "memory": peak_process_memory()}

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        columns = [
            "GAN",
            "batch",
            "FID",
            "seeds",
            "IS",
            "FID to reach",
            "s until",
            "steps until",
            "processor",
            "device",
        ]
        own = [result for result in results["dual"] if result.repeats]
        rows = []
        for batch_size, level in levels(own).items():
            rows += [
                [gan, str(batch_size), *_row(_runs(own, gan, batch_size), level)] for gan in _gans(own, batch_size)
            ]
        note = "FID and IS: median of the seeds, and their range. Seconds are those of training. FID to reach: "
        note += (
            f"{_SLACK} times the worst final one of this batch size. processor: busy cores; waiting for data beside it."
        )
        return [Table("At the end", columns, rows, [note]), equal(own)]

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        own = [result for result in results["dual"] if result.repeats]
        pictures = [
            _curves(own, key, x, batch_size) for batch_size in levels(own) for key in _NAMES for x in ("iteration", "s")
        ]
        frames = {r.settings["gan"]: r.repeats[0]["frames"] for r in own if r.repeats[0]["frames"]}
        return [*pictures, *([Picture("The trainings side by side", film(frames), "gif")] if frames else [])]


class Trace(GenerativeCallback):
    """Records the scores, the iteration and the seconds of training after each measurement.

    Args:
        film: whether to record images of fixed latents, too.
    """

    throughput: Throughput

    def __init__(self, film: bool) -> None:
        self.points: list[dict[str, float]] = []
        self.frames: list[str] = []
        self._film = film

    def on_measure_end(self, trainer: Trainer) -> None:
        values = {key: float(trainer.callback_metrics[key]) for key in _NAMES}
        seconds = self.throughput.seconds if trainer.global_step else 0.0
        images = trainer.global_step * trainer.datamodule.batch_size * _module(trainer).n_critic  # type: ignore[attr-defined]
        self.points.append({"iteration": trainer.global_step, "images": images, "s": seconds, **values})
        if self._film:
            with paused(trainer):
                self.frames.append(encoded(_module(trainer).sample(_TILES, seed=0), 4))


def _module(trainer: Trainer) -> Any:
    module: LightningModule = trainer.lightning_module
    return module


def _overrides(settings: Mapping[str, Any], folder: str) -> list[str]:
    chosen = [
        f"experiment={settings['gan']}_digits",
        f"data.batch_size={settings['batch_size']}",
        f"trainer.max_steps={settings['steps']}",
        f"metrics.every_n_steps={settings['every']}",
        f"metrics.num_samples={settings['samples']}",
        f"metrics.batch_size={min(250, settings['samples'])}",
        f"trainer.accelerator={settings['device']}",
        f"trainer.default_root_dir={folder}",
        f"seed={settings['seed']}",
        "trainer.log_every_n_steps=1",
        "trainer.enable_progress_bar=false",
        "trainer.devices=1",
        *(f"callbacks.{name}=null" for name in ("samples", "watch", "early_stopping", "checkpoint", "progress_bar")),
        "logger=none",
    ]
    if settings["width"] is not None:
        chosen += [f"model.generator_width={settings['width']}", f"model.discriminator_width={settings['width']}"]
    return chosen


def _runs(results: Sequence[Result], gan: str, batch_size: int) -> list[dict[str, Any]]:
    return [r.repeats[0] for r in results if (r.settings["gan"], r.settings["batch_size"]) == (gan, batch_size)]


def _gans(results: Sequence[Result], batch_size: int) -> list[str]:
    """Returns the GANs that were measured at a batch size, in the order of their cells."""
    return list(dict.fromkeys(r.settings["gan"] for r in results if r.settings["batch_size"] == batch_size))


def equal(results: Sequence[Result]) -> Table:
    """Compares the runs of a batch size after the real images, and after the seconds, of the shortest of them."""
    columns = ["GAN", "batch", "images", "last FID", "best", "s", "last FID", "best", "images/s", "MiB"]
    rows = []
    for batch_size in levels(results):
        gans = _gans(results, batch_size)
        points = {gan: [run["points"] for run in _runs(results, gan, batch_size)] for gan in gans}
        ends = [run[-1] for runs in points.values() for run in runs]
        for gan in gans:
            row = [gan, str(batch_size)]
            for key in ("images", "s"):
                limit = min(end[key] for end in ends)
                row += [f"{limit:.0f}", *_within(points[gan], key, limit)]
            memory = [run["memory"] for run in _runs(results, gan, batch_size) if run["memory"] is not None]
            speed = statistics.median(run[-1]["images"] / run[-1]["s"] for run in points[gan])
            mib = f"{statistics.median(memory) / 2**20:.0f}" if memory else "not told here"
            rows.append([*row, f"{speed:.0f}", mib])
    note = (
        "Median of the seeds: the last measurement up to as many images or seconds of training, and the best of those."
    )
    return Table("At equal images and at equal time", columns, rows, [f"{note} MiB: peak memory of the process."])


def _within(runs: Sequence[Sequence[Mapping[str, float]]], key: str, limit: float) -> list[str]:
    """Returns the last and the best FID measured up to a number of images or seconds, or that there is none."""
    fids = [[point[_FID] for point in run if point["iteration"] > 0 and point[key] <= limit] for run in runs]
    if not all(fids):
        return ["not measured by then", ""]
    return [f"{statistics.median(chosen):.2f}" for chosen in ([run[-1] for run in fids], [min(run) for run in fids])]


def levels(results: Sequence[Result]) -> dict[int, float]:
    """Returns the FID whose time is compared, by batch size: one that every run reaches at its end."""
    found: dict[int, float] = {}
    for result in results:
        batch_size, last = result.settings["batch_size"], result.repeats[0]["points"][-1][_FID]
        found[batch_size] = max(found.get(batch_size, 0.0), _SLACK * last)
    return found


def first_below(points: Sequence[Mapping[str, float]], level: float) -> Mapping[str, float]:
    """Returns the first measurement, after that of the untrained generator, whose FID is at most `level`."""
    return next(point for point in points if point["iteration"] > 0 and point[_FID] <= level)


def _row(runs: Sequence[Mapping[str, Any]], level: float) -> list[str]:
    fids, scores = ([run["points"][-1][key] for run in runs] for key in (_FID, _IS))
    reached = [first_below(run["points"], level) for run in runs]
    busy = {key: statistics.median(run["utilisation"].get(f"utilisation/{key}", -1) for run in runs) for key in _BUSY}
    return [
        f"{statistics.median(fids):.2f}",
        f"{min(fids):.2f} .. {max(fids):.2f}, {len(fids)}",
        f"{statistics.median(scores):.2f} ({min(scores):.2f} .. {max(scores):.2f})",
        f"{level:.1f}",
        f"{statistics.median(point['s'] for point in reached):.1f}",
        f"{statistics.median(point['iteration'] for point in reached):.0f}",
        f"{busy['processor']:.2f} ({100 * busy['waiting']:.1f} % waiting)",
        "not told here" if busy["device"] < 0 else f"{100 * busy['device']:.0f} %",
    ]


_BUSY = ("processor", "waiting", "device")


def _curves(results: Sequence[Result], key: str, x: str, batch_size: int) -> Picture:
    """Draws the median of the seeds and the band from the lowest to the highest."""
    drawn = figure()
    (axes,) = drawn.axes
    for gan in _gans(results, batch_size):
        runs = _runs(results, gan, batch_size)
        rows = list(zip(*(run["points"] for run in runs), strict=False))
        xs = [statistics.median(point[x] for point in row) for row in rows]
        values = [[point[key] for point in row] for row in rows]
        (line,) = axes.plot(xs, [statistics.median(row) for row in values], marker="o", label=gan)
        low, high = [min(row) for row in values], [max(row) for row in values]
        axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.2)
    label = "iterations" if x == "iteration" else "seconds of training"
    title = f"{_NAMES[key]} by {label}, batch {batch_size}"
    axes.set(xlabel=label, ylabel=_NAMES[key], title=title, yscale="log" if key == _FID else "linear")
    axes.legend()
    return picture(title, drawn)
