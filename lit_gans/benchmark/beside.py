"""`lit-gans bench run`: what a default run does beside its training step, in seconds per 1,000 iterations."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import Profiler
from rich.table import Table

from lit_gans.benchmark.measure import environment
from lit_gans.benchmark.report import report, table_of
from lit_gans.common.errors import refuse_below
from lit_gans.config.build import build
from lit_gans.config.hydra_app import compose

_STEP, _REST = "step", "Lightning, start and end"
_ACTIONS = {  # beginnings of the names of Lightning's actions
    r"\[Strategy\]\w+\.training_step": _STEP,
    r"\[_TrainingEpochLoop\]\.train_dataloader_next": "data",
    r"\[Callback\]Checkpoint": "checkpoint",
    r"\[Callback\]Samples": "samples",
    r"\[Callback\]GenerativeMetrics": "metrics",
    r"\[Callback\]ProgressBar": "progress",
    r"\[Callback\]EMA": "average (EMA)",
    r"\[Callback\]": "other callbacks",
    r"\[Logger\]CSVMetrics": "CSV",
    r"\[Logger\]": "other loggers",
}
KINDS = (*dict.fromkeys(_ACTIONS.values()), _REST)
_STEPS = {"full": 1000, "smoke": 4}
_SMOKE = (
    *("model.generator_width=4", "model.discriminator_width=4", "data.batch_size=8", "metrics.num_samples=200"),
    *("trainer.log_every_n_steps=1", "callbacks.samples.every_n_steps=2", "callbacks.checkpoint.every_n_train_steps=2"),
)


class ExclusiveTimes(Profiler):
    """Adds each moment of a training to one of `KINDS`.

    What runs inside a callback's hook, or inside the step, counts for it: a checkpoint's callbacks for the checkpoint.

    Attributes:
        seconds, processor_seconds: by kind, by the clock and of all threads of this process on a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.processor_seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self._kinds: list[str] = []  # of the actions that run, the innermost last
        self._since = 0.0, 0.0

    def start(self, action_name: str) -> None:
        """Adds the time since the last change to what ran until now."""
        self._spend()
        outer = self._kinds[-1] if self._kinds else _REST
        self._kinds.append(kind_of(action_name) if outer == _REST else outer)

    def stop(self, action_name: str) -> None:
        """Adds the time since the last change to the action."""
        self._spend()
        self._kinds.pop()

    def _spend(self) -> None:
        now = time.perf_counter(), time.process_time()
        if self._kinds:
            self.seconds[self._kinds[-1]] += now[0] - self._since[0]
            self.processor_seconds[self._kinds[-1]] += now[1] - self._since[1]
        self._since = now


def kind_of(action: str) -> str:
    """Returns which of `KINDS` an action of Lightning's profiler is."""
    return next((kind for pattern, kind in _ACTIONS.items() if re.match(pattern, action)), _REST)


class _TimedLogger(Logger):
    """A logger whose calls are actions of a profiler, which Lightning's are not."""

    def __init__(self, logger: Logger, profiler: Profiler) -> None:
        super().__init__()
        self._logger, self._profiler, self._action = logger, profiler, f"[Logger]{type(logger).__name__}"

    @property
    def name(self) -> str | None:
        return self._logger.name

    @property
    def version(self) -> int | str | None:
        return self._logger.version

    @property
    def save_dir(self) -> str | None:
        return self._logger.save_dir

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        with self._profiler.profile(self._action):
            self._logger.log_hyperparams(params, *args, **kwargs)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        with self._profiler.profile(self._action):
            self._logger.log_metrics(metrics, step)

    def save(self) -> None:
        with self._profiler.profile(self._action):
            self._logger.save()

    def finalize(self, status: str) -> None:
        with self._profiler.profile(self._action):
            self._logger.finalize(status)


def run(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    training: str = "dcgan_digits",
    steps: int | None = None,
) -> dict[str, Any]:
    """Trains an experiment with the callbacks, metrics and loggers of its defaults, and tells where its time goes.

    Three runs in one process: a short one, after which everything is imported and cached; one without measurement; and
    one whose every moment belongs to one row of the table, by Lightning's profiler. The sum of the rows is compared
    with the time of the second run. Times are those of `Trainer.fit`, without a terminal. The profiled step also runs
    Lightning's hooks around backward and optimizer, which a plain one leaves out. Returns and prints seconds.

    Args:
        preset: `smoke` trains tiny networks for a moment.
        output: optional JSON file to write.
        training: name of the experiment to train.
        steps: number of iterations; null uses the preset's number.
    """
    steps = _STEPS[preset] if steps is None else steps
    refuse_below(1, steps=steps)
    overrides = (f"experiment={training}", *(_SMOKE if preset == "smoke" else ()))
    _fit(1, overrides, None)
    alone = _fit(steps, overrides, None)
    times = ExclusiveTimes()
    profiled = _fit(steps, overrides, times)
    result = {
        "benchmark": "run",
        **{"preset": preset, "training": training, "steps": steps, **environment(torch.device("cpu"))},
        **{"seconds": times.seconds, "processor_seconds": times.processor_seconds},
        **{"run": alone, "profiled_run": profiled},
    }
    note = f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"
    return report(result, [_table(result)], [note], output)


def _fit(steps: int, overrides: tuple[str, ...], times: ExclusiveTimes | None) -> dict[str, float]:
    """Trains once, and returns its time by the clock and on a processor."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        places = f"trainer.default_root_dir={folder}", "trainer.accelerator=cpu"
        module, data, trainer = build(compose(*overrides, *places, f"trainer.max_steps={steps}"))
        if times is not None:
            _observe(trainer, times)
        start, processor_start = time.perf_counter(), time.process_time()
        if times is None:
            trainer.fit(module, data)
        else:
            with times.profile("fit"):
                trainer.fit(module, data)
        assert Path(folder, "metrics.csv").is_file()
        return {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - processor_start,
        }


def _observe(trainer: Trainer, times: ExclusiveTimes) -> None:
    trainer.profiler = times  # type: ignore[attr-defined]  # set by a connector
    trainer.loggers = [_TimedLogger(logger, times) for logger in trainer.loggers]


def _table(result: dict[str, Any]) -> Table:
    table = table_of(f"s per 1,000 iterations of {result['training']}", "", "by the clock", "on a processor", "share")
    scale = 1000 / result["steps"]
    columns = result["seconds"], result["processor_seconds"]
    total = sum(columns[1].values())
    for kind in sorted(KINDS, key=lambda kind: -columns[1][kind]):
        numbers = (f"{scale * column[kind]:.3g}" for column in columns)
        table.add_row(kind, *numbers, f"{100 * columns[1][kind] / total:.1f} %")
    table.add_section()
    table.add_row("sum", *(f"{scale * sum(column.values()):.3g}" for column in columns), "100 %")
    table.add_row("the same run, not measured", *(f"{scale * value:.3g}" for value in result["run"].values()), "")
    return table
