"""Report of `lit-gans train` at the end of a run, and the row of a run in the table of a sweep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from lightning.pytorch import Trainer

from lit_gans.callbacks import Checkpoint, Samples, Throughput
from lit_gans.callbacks.evaluation import Measurement
from lit_gans.callbacks.samples import FILM
from lit_gans.cli.sweep import Run
from lit_gans.common.paths import shown
from lit_gans.config.mistakes import DONE, STOPPED
from lit_gans.config.registry import IMPORT_VARIABLE
from lit_gans.training.callback import callbacks_of
from lit_gans.training.translator import Translator

_METRIC = "metric/"
_ALWAYS = ("loss/", "throughput/", "utilization/")  # logged by every run and reported elsewhere


def report(trainer: Trainer, overrides: Sequence[str] = ("<the same overrides>",)) -> int:
    """Prints where the results are and returns the exit code: 128 plus the signal's number, otherwise 0.

    Args:
        trainer: trainer after the training.
        overrides: the command line of the run, quoted for a shell.
    """
    checkpoint = next(iter(callbacks_of(trainer, Checkpoint)), None)
    samples = next(iter(callbacks_of(trainer, Samples)), None)
    folder = shown(Path(trainer.default_root_dir))
    step, signal = trainer.global_step, checkpoint.received_signal if checkpoint else None
    stopped = signal and step != trainer.max_steps  # a signal in the last iteration leaves nothing to be resumed
    module = f"{IMPORT_VARIABLE}={quote(os.environ[IMPORT_VARIABLE])} " if os.environ.get(IMPORT_VARIABLE) else ""
    lines = [f"{'Stopped after' if stopped else 'Done:'} {step} iterations in {folder}"]
    for metrics in callbacks_of(trainer, Measurement):
        if metrics.values:
            lines += metrics.summary()
    grid = folder / "samples" / f"{step:06d}.png"
    if samples is not None and grid.exists():
        over_time = f", over time: {FILM} beside it" if grid.with_name(FILM).exists() else ""
        lines.append(f"samples     {grid}{over_time}")
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
            again = [*(item for item in overrides if not item.startswith("resume=")), quote(f"resume={last}")]
            lines.append(f"next        {module}lit-gans train {' '.join(again)}")
            at = step if best == last else checkpoint.best_step
            lines.append(
                f"until then  lit-gans sample {quote(f'checkpoint={folder}')} takes {best.name}, iteration {at}"
            )
        elif best.exists():
            lines.append(f"next        {module}lit-gans sample {quote(f'checkpoint={best}')} {what}")
    if trainer.is_global_zero:
        print("\n  ".join(lines), flush=True)
    return STOPPED + signal if signal else DONE


def run_of(trainer: Trainer, overrides: list[str], seconds: float) -> Run:
    """Returns a run's entry in the table of a sweep: metrics, and other values that a custom GAN logs."""
    logged = {name: float(value) for name, value in trainer.callback_metrics.items() if not name.startswith(_ALWAYS)}
    values = {name.removeprefix(_METRIC): value for name, value in logged.items() if name.startswith(_METRIC)}
    values |= {name: value for name, value in logged.items() if not name.startswith(_METRIC)}
    values = {name: value for name, value in values.items() if "_spread_" not in name}  # the table is for a terminal
    speed = next((c.mean_images_per_second for c in callbacks_of(trainer, Throughput)), None)
    values |= {"images/s": speed or float("nan"), "seconds": seconds}
    samples = Samples.folder(trainer) / f"{trainer.global_step:06d}.png"
    return Run(overrides, values, Path(trainer.default_root_dir), samples)
