"""Batch sizes: throughput and memory of every GAN on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measure import MEBIBYTE
from benchmarks.report import median, quartiles
from benchmarks.study.contract import Cell, Part, Picture, Result, Table
from benchmarks.study.plotting import Points, lines
from benchmarks.study.settings import Settings
from benchmarks.study.training import CELEBA_IMAGES, model_node, timing, train


class Batch(Part):
    """Trains each GAN with batches of several sizes on each device."""

    title = "Batch sizes"
    question = (
        "Real images per second, seconds for an epoch of CelebA's 202,599 images, seconds of the measured training from"
        " start to end, and peak memory, by batch size. Images per second count each real image of a generator"
        " iteration once, as the scaling study does; all critic steps of an iteration are in its time."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        return [
            Cell(
                "batch",
                f"{gan}, batch {batch_size}, {device}",
                {
                    "gan": gan,
                    "model": model_node(gan, settings.image_size, settings.width, device=device, seed=settings.seed),
                    "batch_size": batch_size,
                    "device": device,
                    **timing(settings),
                },
            )
            for device in settings.devices
            for gan in settings.gans
            for batch_size in settings.batch_sizes
        ]

    def measure(self, cell: Cell) -> dict[str, Any]:
        return train(cell.settings)

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        columns = [
            "GAN",
            "parameters",
            "batch",
            "images/s",
            "quartiles",
            "s an epoch",
            "s of the training",
            "peak memory, MiB",
            "n",
        ]
        tables = []
        for device in _devices(results["batch"]):
            rows = [_row(r) for r in results["batch"] if r.repeats and r.settings["device"] == device]
            note = "n: number of repeats. parameters: of all networks. Memory on a CPU is the growth of the process."
            tables.append(Table(f"On {device}", columns, rows, [note]))
        return tables

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        pictures = []
        for device in _devices(results["batch"]):
            curves: dict[str, Points] = {}
            for gan in dict.fromkeys(result.settings["gan"] for result in results["batch"]):
                own = [r for r in results["batch"] if r.repeats and _is(r, gan, device)]
                if own:
                    curves[gan] = [(r.settings["batch_size"], r.median("generator_images_per_second")) for r in own]
            if curves:
                pictures.append(lines(f"Images per second on {device}", curves, "batch size", "images/s", "xy"))
        return pictures


def _devices(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.settings["device"] for result in results))


def _is(result: Result, gan: str, device: str) -> bool:
    return (result.settings["gan"], result.settings["device"]) == (gan, device)


def _row(result: Result) -> list[str]:
    speed = result.spread("generator_images_per_second")
    return [
        result.settings["gan"],
        f"{result.median('parameters'):,.0f}",
        str(result.settings["batch_size"]),
        median(speed, ".1f"),
        quartiles(speed, ".1f"),
        f"{CELEBA_IMAGES / speed['median']:,.0f}",
        f"{result.median('fit_seconds'):.1f}",
        f"{result.median('peak_memory') / MEBIBYTE:.0f}",
        str(len(result.repeats)),
    ]
