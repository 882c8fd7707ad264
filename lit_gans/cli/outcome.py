"""Output at the end of `lit-gans train`: the report of a run, and the table and sample grids of a sweep."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote
from textwrap import shorten
from typing import Any

import numpy as np
import yaml
from lightning.pytorch import Trainer
from matplotlib.figure import Figure
from PIL import Image

from lit_gans.callbacks import RunCheckpoint, Samples, Throughput
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.samples import FILM, GRIDS
from lit_gans.checkpoints.format import measurements_of
from lit_gans.cli.tables import markdown
from lit_gans.cli.train_arguments import without_address
from lit_gans.common.errors import FailedWrite, is_out_of_memory, out_of_memory
from lit_gans.common.paths import printable, shown
from lit_gans.config.mistakes import DONE, STOPPED
from lit_gans.config.overrides import key_of
from lit_gans.config.registry import IMPORT_VARIABLE
from lit_gans.metrics.protocol import conflicts_of
from lit_gans.training.callback import callbacks_of
from lit_gans.training.translator import Translator

_METRIC = "metric/"
_ALWAYS = ("loss/", "throughput/", "utilization/")  # prefixes of values that are excluded from the table
_INCHES = 3.2  # width and height of a run's samples in the figure, in inches of 100 pixels
_TITLE = 0.3  # height of a run's title in the figure, in inches
_COLUMNS = 8
_MAX_TITLE = 200  # maximum number of characters of a title


@dataclass
class SweepRun:
    """Run of a sweep.

    Args:
        overrides: overrides on the command line of the run.
        values: measured values by name.
        folder: folder of the run.
        samples: path of the last sample grid. The file might not exist.
        is_finished: whether the run ended normally; False if it diverged or was stopped.
        protocols: protocol of each measurement by the key of its headline value.
    """

    overrides: list[str]
    values: dict[str, float]
    folder: Path
    samples: Path
    is_finished: bool = True
    protocols: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@contextmanager
def failures_printed(resume: str = "resume=auto") -> Iterator[None]:
    """Context manager that prints certain errors instead of raising them, so that a sweep continues with its next run.

    These errors are divergence, a failed write, and insufficient device memory.

    Args:
        resume: argument of the command that continues from the last checkpoint.
    """
    try:
        yield
    except FloatingPointError as error:
        print(f"lit-gans: {error}", file=sys.stderr)
    except FailedWrite as error:
        print(f"lit-gans: {error} {resume} continues from the last checkpoint.", file=sys.stderr)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        print(f"lit-gans: {out_of_memory(error)}", file=sys.stderr)


def report(trainer: Trainer, overrides: Sequence[str] = ()) -> int:
    """Prints the results of a run with their paths, and returns the exit code.

    The exit code is 0, or 128 plus the number of the signal that was received.

    Args:
        trainer: trainer after the training.
        overrides: arguments of the command that started the run, without quotes for a shell.
    """
    checkpoint = next(iter(callbacks_of(trainer, RunCheckpoint)), None)
    samples = next(iter(callbacks_of(trainer, Samples)), None)
    folder = shown(Path(trainer.default_root_dir))
    step, signal = trainer.global_step, checkpoint.received_signal if checkpoint else None
    stopped = _is_stopped(trainer)
    module = f"{IMPORT_VARIABLE}={quote(os.environ[IMPORT_VARIABLE])} " if os.environ.get(IMPORT_VARIABLE) else ""
    lines = [f"{'Stopped after' if stopped else 'Done:'} {step} iterations in {folder}"]
    for metrics in callbacks_of(trainer, Measurement):
        if metrics.headline in metrics.values:  # a resumed run might not have measured a new score yet
            lines += metrics.summary()
    grid = folder / GRIDS / f"{step:06d}.png"
    if samples is not None and grid.exists():
        animation = f", animated: {FILM} in the same folder" if grid.with_name(FILM).exists() else ""
        lines.append(f"samples     {grid}{animation}")
    if checkpoint is not None:
        paths = {name: folder / "checkpoints" / f"{name}.ckpt" for name in ("best", "last")}
        described = checkpoint.describe_best(trainer)
        best = paths["last"] if described is None else paths["best"]
        if described is not None and best.exists():
            lines.append(f"best        {best} ({described})")
        last = paths["last"]
        if last.exists():
            lines.append(f"last        {last} (iteration {step})")
        what = "input=FOLDER" if isinstance(trainer.lightning_module, Translator) else "num=64"
        if stopped and last.exists():
            kept = [item for item in overrides if key_of(item) not in ("resume", "init_from")]
            _, address = without_address(kept)  # only resume=auto continues a run at a URL
            resuming = [*kept, "resume=auto" if address else f"resume={last}"]
            lines.append(f"next        {module}lit-gans train {join(resuming)}")
            iteration = step if best == last else checkpoint.best_step
            lines.append(
                f"until then  lit-gans sample {quote(f'checkpoint={folder}')} uses {best.name}, iteration {iteration}"
            )
        elif best.exists():
            lines.append(f"next        {module}lit-gans sample {quote(f'checkpoint={best}')} {what}")
    if trainer.is_global_zero:
        print("\n  ".join(lines), flush=True)
    return STOPPED + signal if signal else DONE


def entry_of(trainer: Trainer, overrides: list[str], seconds: float) -> SweepRun:
    """Returns the entry of a run in the table of a sweep, with metrics and with values that a custom GAN logs."""
    logged = {name: float(value) for name, value in trainer.callback_metrics.items() if not name.startswith(_ALWAYS)}
    values = {name.removeprefix(_METRIC): value for name, value in logged.items() if name.startswith(_METRIC)}
    values |= {name: value for name, value in logged.items() if not name.startswith(_METRIC)}
    values = _narrow(values)
    speed = next((c.mean_images_per_second for c in callbacks_of(trainer, Throughput)), None)
    values |= {"images/s": speed or float("nan"), "seconds": seconds}
    samples = Samples.folder(trainer) / f"{trainer.global_step:06d}.png"
    protocols: dict[str, Mapping[str, Any]] = {
        metrics.headline: metrics.protocol for metrics in callbacks_of(trainer, Measurement)
    }
    return SweepRun(overrides, values, Path(trainer.default_root_dir), samples, not _is_stopped(trainer), protocols)


def entry_of_checkpoint(checkpoint: dict[str, Any], overrides: list[str], folder: Path) -> SweepRun:
    """Returns the entry of a finished run in the table of a continued sweep, with the metrics in its last checkpoint.

    Speed, duration and the values that a custom GAN logs are missing, because the checkpoint does not contain them.
    """
    measured = measurements_of(checkpoint)
    values = {name.removeprefix(_METRIC): value for state in measured for name, value in state["values"].items()}
    samples = folder / GRIDS / f"{checkpoint['global_step']:06d}.png"
    protocols = {next(iter(state["values"])): state["protocol"] for state in measured}
    return SweepRun(overrides, _narrow(values), folder, samples, protocols=protocols)


def _narrow(values: dict[str, float]) -> dict[str, float]:
    """Returns values without the spreads of scores, to keep the table narrow."""
    return {name: value for name, value in values.items() if "_spread_" not in name}


def _is_stopped(trainer: Trainer) -> bool:
    """Returns whether a signal stopped the training before its last iteration, so that the run can be resumed."""
    return any(checkpoint.stopped_by_signal for checkpoint in callbacks_of(trainer, RunCheckpoint))


def write_summary(runs: list[SweepRun], folder: Path) -> list[str]:
    """Writes `table.md` and, if there are sample grids, `samples.png`, and returns the lines of a readable summary.

    The values are those of the last iteration. If two runs were measured with settings that make their values
    incomparable, a line below the table says so. If some runs differ only in their seed, a second table contains the
    mean and the standard deviation over the seeds. The second table includes only finished runs, because the values of
    a stopped run are from an earlier iteration.
    """
    common = set.intersection(*(set(run.overrides) for run in runs))
    columns = list(dict.fromkeys(name for run in runs for name in run.values))
    names: list[str] = []
    by_seed: dict[str, list[SweepRun]] = {}
    for run in runs:
        differs = [text for text in run.overrides if text not in common]
        names.append(_name(differs) + ("" if run.is_finished else " (not finished)"))
        group = _name([text for text in differs if not text.startswith("seed=")])
        if run.is_finished:
            by_seed.setdefault(group or "all", []).append(run)
    cells = ([_number(run.values.get(column)) for column in columns] for run in runs)
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    lines = [*markdown([["run", *columns], *rows]), *_incomparable(names, runs)]
    if any(len(same) > 1 for same in by_seed.values()):
        rows = [[name, str(len(same)), *(_mean(same, column) for column in columns)] for name, same in by_seed.items()]
        lines += [
            "",
            "mean ± standard deviation over the seeds, of the last iteration",
            "",
            *markdown([["run", "seeds", *columns], *rows]),
        ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
    grids = [(name, run.samples) for name, run in zip(names, runs, strict=True) if run.samples.is_file()]
    if grids:
        _side_by_side(grids, folder / "samples.png")
        lines.append(f"side by side: {folder / 'samples.png'}")
    return lines


def _incomparable(names: Sequence[str], runs: Sequence[SweepRun]) -> list[str]:
    """Returns a line for each measurement whose values cannot be compared between two of the runs."""
    lines: dict[str, str] = {}
    firsts: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, run in zip(names, runs, strict=True):
        for key, protocol in run.protocols.items():
            if not protocol:  # the run was stopped before its first measurement
                continue
            first, expected = firsts.setdefault(key, (name, protocol))
            conflicts = conflicts_of(expected, protocol)
            if conflicts and key not in lines:
                lines[key] = f"not comparable: {key} of {first} and of {name} ({conflicts})"
    return ["", *lines.values()] if lines else []


def found_by_sweeper(folder: Path) -> list[str]:
    """Returns a list with one line of best values if a Hydra sweeper has written them, otherwise an empty list."""
    path = folder / "optimization_results.yaml"
    results = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if "best_params" not in results:
        return []
    values = " ".join(f"{key}={value}" for key, value in results["best_params"].items())
    return [f"best: {values}, with {_number(results['best_value'])} ({path})"]


def _name(overrides: list[str]) -> str:
    return " ".join(text.removeprefix("experiment=") for text in overrides)


def _mean(runs: list[SweepRun], column: str) -> str:
    values = [run.values[column] for run in runs if column in run.values]
    if len(values) < 2:
        return _number(values[0] if values else None)
    with np.errstate(invalid="ignore"):  # the deviation of infinite values is NaN
        return f"{_number(float(np.mean(values)))} ± {np.std(values, ddof=1):.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _side_by_side(grids: list[tuple[str, Path]], path: Path) -> None:
    """Saves a figure of sample grids, with the name of the run above every grid."""
    columns = min(len(grids), _COLUMNS)
    rows = math.ceil(len(grids) / columns)
    figure = Figure(figsize=(_INCHES * columns, (_INCHES + _TITLE) * rows), layout="constrained")
    for axes in figure.subplots(rows, columns, squeeze=False).flat:
        axes.axis("off")
    for axes, (name, grid) in zip(figure.axes, grids, strict=False):
        with Image.open(grid) as image:
            axes.imshow(image.convert("RGB"))
        axes.set_title(shorten(printable(name), _MAX_TITLE), fontsize="small", wrap=True, parse_math=False)
    figure.savefig(path)
