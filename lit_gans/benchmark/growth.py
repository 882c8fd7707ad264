"""`lit-gans bench growth`: what a long training holds at its end, compared with what it held after warm-up."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table

from lit_gans.benchmark.growth_samples import Growth, TimedCSV
from lit_gans.benchmark.measure import MEBIBYTE, environment
from lit_gans.benchmark.report import report, table_of
from lit_gans.benchmark.soak_training import Training
from lit_gans.checkpoints.format import class_path
from lit_gans.common.errors import RefusedInput, refuse_below

_FIFTHS = 5
# the time of a row is reported, but depends on the load of the machine: its bytes are bounded
_BOUNDED = ("memory", "files", "threads", "csv_bytes")
_MOST = 2.0  # percent
_SHOWN = {
    "memory": ("MiB", MEBIBYTE),
    "files": ("", 1),
    "threads": ("", 1),
    "csv_row": ("us", 1e-6),
    "csv_bytes": ("bytes a byte", 1),
}
_PRESETS = {"full": (5000, 20), "smoke": (100, 5)}


def growth(
    preset: Literal["full", "smoke"] = "full",
    steps: int | None = None,
    evaluations: int | None = None,
    processes: list[int] = [1, 2],  # noqa: B006 - read only
    output: str | None = None,
) -> dict[str, Any]:
    """Trains a tiny DCGAN for long, with the callbacks and loggers of a default run, and samples what it holds.

    `lit-gans train` trains on digits, in one process and in two under `strategy=ddp`, with measurements, grids and
    checkpoints. Each process samples its resident memory, open files and threads, and the first one the processor time
    of a row of `metrics.csv`, and the bytes that it reads and writes. The first fifth is warm-up; growth is the
    difference of the medians of the last and the second fifth, in percent. Needs Linux.

    Args:
        preset: `smoke` is too short to say anything of memory.
        steps: number of iterations; null uses the preset's number.
        evaluations: number of evaluations in them; null uses the preset's number.
        processes: numbers of processes, one training each.
        output: optional JSON file to write.

    Returns:
        `runs`, for each number of processes: a list of what each process held after warm-up and at its end, with the
        growth in percent; `grown`: what grew by 2 % or more.

    Raises:
        RefusedInput: a value is out of range.
        SystemExit: memory, open files, threads or the bytes of a row grew by 2 % or more.
    """
    steps = _PRESETS[preset][0] if steps is None else steps
    evaluations = _PRESETS[preset][1] if evaluations is None else evaluations
    refuse_below(1, evaluations=evaluations, **{f"processes[{at}]": each for at, each in enumerate(processes)})
    if not processes:
        raise RefusedInput("processes=[]: give at least one number of processes, as in processes=[1,2].")
    if steps < _FIFTHS * evaluations:
        raise RefusedInput(f"steps={steps} must be at least {_FIFTHS * evaluations}, five for each evaluation.")
    if sys.platform != "linux":
        raise RefusedInput("bench growth needs Linux: it reads /proc.")
    runs = {str(each): _train(each, steps, evaluations) for each in processes}
    too_much = grown(runs)
    settings = {"preset": preset, "steps": steps, "evaluations": evaluations}
    result = {"benchmark": "growth", **settings, **environment(torch.device("cpu")), "runs": runs, "grown": too_much}
    report(result, [_table(result)], [], output)
    if too_much:
        raise SystemExit(f"lit-gans: {'; '.join(too_much)}: {_MOST:.0f} % or more.")
    return result


def _train(processes: int, steps: int, evaluations: int) -> list[dict[str, Any]]:
    """Trains, and returns the growth of each process."""
    with tempfile.TemporaryDirectory(prefix="lit_gans_growth_") as folder:
        training = Training(Path(folder), _overrides(processes, steps, steps // evaluations))
        if training.end():
            raise RuntimeError(f"the training failed:\n{training.output}")
        files = [Path(folder) / f"run/growth-{rank}.json" for rank in range(processes)]
        return [grew(json.loads(file.read_text())) for file in files]


def _overrides(processes: int, steps: int, every: int) -> list[str]:
    return [
        *("model=dcgan", "data=digits", "metrics=digits", "data.image_size=16", "data.batch_size=4"),
        *("model.generator_width=2", "model.discriminator_width=2", "model.latent_dim=4", "hydra.run.dir=run"),
        *("metrics.num_samples=20", "metrics.batch_size=20", f"metrics.every_n_steps={every}"),
        *("callbacks.samples.num=4", f"callbacks.samples.every_n_steps={every}"),
        *(f"callbacks.checkpoint.every_n_train_steps={every}", f"+callbacks.growth._target_={class_path(Growth)}"),
        *(f"logger.csv._target_={class_path(TimedCSV)}", f"trainer.max_steps={steps}"),
        *("trainer.accelerator=cpu", f"strategy={'auto' if processes == 1 else 'ddp'}", f"trainer.devices={processes}"),
    ]


def grew(samples: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Returns the medians of the second and the last fifth of each kind of samples, and the growth in percent."""
    found = {}
    for name, values in samples.items():
        if len(values) >= _FIFTHS:
            fifth = len(values) // _FIFTHS
            before, after = statistics.median(values[fifth : 2 * fifth]), statistics.median(values[-fifth:])
            found[name] = {"warm": before, "end": after, "growth_percent": 100 * (after - before) / before}
    return found


def grown(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Returns what grew too much, a sentence each."""
    return [
        f"{name} of process {rank} of {processes} grew by {found[name]['growth_percent']:.1f} %"
        for processes, ranks in runs.items()
        for rank, found in enumerate(ranks)
        for name in _BOUNDED
        if name in found and found[name]["growth_percent"] >= _MOST
    ]


def _table(result: dict[str, Any]) -> Table:
    title = f"{result['steps']} iterations with {result['evaluations']} evaluations"
    table = table_of(title, "", "after warm-up", "at the end", "growth")
    for processes, ranks in result["runs"].items():
        for rank, found in enumerate(ranks):
            for name, each in found.items():
                unit, scale = _SHOWN[name]
                values = (f"{each[when] / scale:,.1f} {unit}".rstrip() for when in ("warm", "end"))
                table.add_row(f"{name}, process {rank} of {processes}", *values, f"{each['growth_percent']:+.2f} %")
    return table
