"""Overlap: how each step divides into computation, communication, both at once, and waiting for data."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jpegs import write_jpegs
from benchmarks.study.contract import Cell, Part, Picture, Result, Table, require_device
from benchmarks.study.intervals import SHARES
from benchmarks.study.plotting import stacked
from benchmarks.study.settings import Settings
from benchmarks.study.timeline import DeviceProfile, Steps, TimedData, TimedDDP, Timeline, mean_shares
from benchmarks.study.training import model_node, train
from lit_gans.data.sources.folder import Folder

_PICTURES_PER_BATCH = 2  # of the folder, in batches of one step


class Overlap(Part):
    """Records when a training with several processes computes, communicates and waits for data."""

    title = "Overlap of computation and communication"
    question = (
        "Milliseconds of a step in which a process only computes, only communicates, does both, only waits for data, or"
        " does nothing. On a CPU, from the times at which DDP starts and finishes each all-reduce, and the host waits"
        " for it; on CUDA, from the profiler's kernels. Real images from files, packed as in a training."
    )

    def cells(self, settings: Settings) -> list[Cell]:
        cells = []
        for gan in settings.gans:
            for ranks in settings.ranks:
                values = {
                    "gan": gan,
                    "model": model_node(
                        gan, settings.image_size, settings.width, device=settings.device, seed=settings.seed
                    ),
                    "batch_size": settings.batch_size,
                    "device": settings.device,
                    "warmup": max(1, settings.warmup),
                    "steps": settings.steps,
                    "seconds": settings.seconds,
                }
                reason = (
                    "it needs pairs, and the folder of this part has single pictures." if gan == "pix2pix" else None
                )
                cells.append(Cell("overlap", f"{gan}, {ranks}", values, ranks, reason=reason))
        return cells

    def measure(self, cell: Cell) -> dict[str, Any]:
        settings = cell.settings
        require_device(settings["device"])
        model = settings["model"]
        timeline, warmup = Timeline(), settings["warmup"]
        profile = DeviceProfile(warmup) if settings["device"] == "cuda" else None
        with tempfile.TemporaryDirectory() as folder:
            batch = settings["batch_size"] * int(model["n_critic"]) * int(model["accumulate_gradients"])
            num = _PICTURES_PER_BATCH * batch * cell.ranks
            sizes = {"image_size": model["image_size"], "batch_size": settings["batch_size"]}
            jpegs = write_jpegs(Path(folder) / "jpegs", num, 0)
            data = TimedData(Folder(str(jpegs), cache=f"{folder}/cache", **sizes), timeline)
            callbacks = [Steps(timeline), *([profile] if profile else [])]
            found = train(settings, callbacks, TimedDDP(timeline), data)
        shares = profile.shares() if profile else mean_shares(timeline.shares(warmup))
        return {**found, **shares, "sum": sum(shares.values()), "step": found["seconds"]}

    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        own = [result for result in results["overlap"] if result.repeats]
        columns = ["GAN", "processes", *(f"{name}, ms" for name in SHARES), "sum, ms", "step, ms", "sum : step", "n"]
        rows = [
            [
                result.settings["gan"],
                str(result.cell.ranks),
                *(f"{1000 * step[name]:.1f}" for name in (*SHARES, "sum", "step")),
                f"{step['sum'] / step['step']:.3f}",
                str(len(result.repeats)),
            ]
            for result, step in ((result, _median_step(result)) for result in own)
        ]
        note = (
            "The repeat with the median step, so that its times add up. step: measured by another clock, from the end"
            " of the warm-up to the end of the last step."
        )
        loading = _loading(own, results.get("scaling", []))
        return [Table("A step", columns, rows, [note]), Table("Shares of a step", *_shares(own)), loading]

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        own = [result for result in results["overlap"] if result.repeats]
        bars = {result.cell.name: {name: 100 * share for name, share in _shares_of(result).items()} for result in own}
        return [stacked("Shares of a step, by GAN and number of processes", bars, "% of a step")] if bars else []


def _shares(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [r.settings["gan"], str(r.cell.ranks), *(f"{100 * share:.1f} %" for share in _shares_of(r).values())]
        for r in results
    ]
    return ["GAN", "processes", *SHARES], rows


def _shares_of(result: Result) -> dict[str, float]:
    step = _median_step(result)
    return {name: step[name] / step["sum"] for name in SHARES}


def _median_step(result: Result) -> Mapping[str, Any]:
    """Returns the repeat with the median step, of two the faster one."""
    return sorted(result.repeats, key=lambda repeat: repeat["step"])[(len(result.repeats) - 1) // 2]


def _loading(results: Sequence[Result], scaling: Sequence[Result]) -> Table:
    """Returns the table of images per second from files, and from memory as `scaling` measured them."""
    memory = {
        (result.settings["gan"], result.cell.ranks, result.settings["batch_size"]): result
        for result in scaling
        if result.repeats and result.settings["kind"] == "weak"
    }
    rows = []
    for result in results:
        other = memory.get((result.settings["gan"], result.cell.ranks, result.settings["batch_size"]))
        speed = result.median("generator_images_per_second")
        row = [result.settings["gan"], str(result.cell.ranks), f"{speed:.1f}"]
        if other is None:
            rows.append([*row, "", ""])
        else:
            without = other.median("generator_images_per_second")
            rows.append([*row, f"{without:.1f}", f"{100 * speed / without:.0f} %"])
    columns = ["GAN", "processes", "images/s from files", "from memory", "share of it"]
    note = "From memory: the cells of weak scaling, the same random images in every step, and nothing recorded."
    return Table("With and without loading", columns, rows, [note])
