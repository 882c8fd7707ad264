"""Weak and strong scaling of every GAN over processes, devices and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchmarks.report import median, quartiles
from benchmarks.study.contract import Cell, Part, Picture, Result, Table
from benchmarks.study.plotting import Points, lines
from benchmarks.study.settings import Settings
from benchmarks.study.training import model_node, timing, train

Kind = Literal["weak", "strong"]
_KINDS: tuple[Kind, ...] = ("weak", "strong")


class Scaling(Part):
    """Trains each GAN on 1, 2, 4, ... processes with the same batch per process, and with the same batch in all."""

    title = "Scaling"
    question = (
        "Real images per second of all processes together under `strategy=ddp`, and efficiency: the share of n times"
        " the speed of one process. Weak scaling has the same batch in each process, strong scaling the same in all. On"
        " a CPU the processes of a machine share its cores, each with an equal number of them: n processes that lose"
        " nothing have an efficiency of 1 / n."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        return [
            self._cell(settings, gan, kind, ranks)
            for gan in settings.gans
            for kind in _KINDS
            for ranks in settings.ranks
        ]

    def _cell(self, settings: Settings, gan: str, kind: Kind, ranks: int) -> Cell:
        per_rank = settings.batch_size if kind == "weak" else settings.batch_size // ranks
        reason = None
        if settings.batch_size % ranks and kind == "strong":
            reason = f"a batch of {settings.batch_size} cannot be split over {ranks} processes."
        values = {
            "gan": gan,
            "kind": kind,
            "model": model_node(gan, settings.image_size, settings.width, device=settings.device, seed=settings.seed),
            "batch_size": per_rank,
            "device": settings.device,
            "strategy": {"name": "network_ddp"},  # with one process, too: what it costs is no loss of efficiency
            **timing(settings),
        }
        return Cell("scaling", f"{gan}, {kind}, {ranks}", values, ranks, reason=reason)

    def measure(self, cell: Cell) -> dict[str, Any]:
        return train(cell.settings)

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        columns = ["GAN", "processes", "batch each", "images/s", "quartiles", "efficiency", "loss D", "loss G", "n"]
        tables = []
        for kind in _KINDS:
            own = [result for result in results["scaling"] if result.repeats and result.settings["kind"] == kind]
            rows = [_row(result, own) for result in own]
            tables.append(Table(f"{kind.capitalize()} scaling", columns, rows, ["n: number of repeats."]))
        return tables

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        pictures = []
        for kind in _KINDS:
            own = [result for result in results["scaling"] if result.repeats and result.settings["kind"] == kind]
            curves: dict[str, Points] = {}
            ideal: dict[str, Points] = {}
            for gan in dict.fromkeys(result.settings["gan"] for result in own):
                points = [(r.cell.ranks, _speed(r)) for r in own if r.settings["gan"] == gan]
                curves[gan] = points
                ideal[gan] = [(ranks, ranks * points[0][1] / points[0][0]) for ranks, _ in points]
            if curves:
                title = f"{kind.capitalize()} scaling, dashed: ideal"
                pictures.append(lines(title, curves, "processes", "images/s", "xy", ideal))
        return pictures


def efficiency(result: Result, others: Sequence[Result]) -> float | None:
    """Returns the share of n times the speed of one process; None if one process has not been measured.

    Args:
        result: result of n processes.
        others: results of the same kind of scaling.
    """
    alone = [r for r in others if r.cell.ranks == 1 and r.settings["gan"] == result.settings["gan"] and r.repeats]
    return _speed(result) / _speed(alone[0]) / result.cell.ranks if alone else None


def _speed(result: Result) -> float:
    return result.median("generator_images_per_second")


def _row(result: Result, others: Sequence[Result]) -> list[str]:
    speed, share = result.spread("generator_images_per_second"), efficiency(result, others)
    discriminators = [k for k in result.repeats[0] if k.startswith("loss/") and k != "loss/generator"]
    return [
        result.settings["gan"],
        str(result.cell.ranks),
        str(result.settings["batch_size"]),
        median(speed, ".1f"),
        quartiles(speed, ".1f"),
        "" if share is None else f"{100 * share:.0f} %",
        " ".join(f"{result.median(name):.3f}" for name in discriminators),
        f"{result.median('loss/generator'):.3f}",
        str(len(result.repeats)),
    ]
