"""What `lit-gans bench growth` samples in each process of a training."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.training.callback import GenerativeCallback

_SAMPLES = 250  # of a training


class TimedCSV(CSVMetrics):
    """`metrics.csv`, whose rows are timed, and whose bytes are counted: as many rows at a time as are written at once.

    Attributes:
        seconds: processor time of a row, the mean of `flush_every`.
        num_bytes: bytes that each write has read and written for a byte of its rows, 1 where rows are appended.
    """

    def __init__(self, save_dir: str, flush_every: int = 10) -> None:
        super().__init__(save_dir, flush_every)
        self.seconds: list[float] = []
        self.num_bytes: list[float] = []
        self._calls_timed, self._sum = 0, 0.0

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        start = time.thread_time()
        super().log_metrics(metrics, step)
        self._sum += time.thread_time() - start
        self._calls_timed += 1
        if self._calls_timed % self.flush_every == 0:
            self.seconds.append(self._sum / self.flush_every)
            self._sum = 0.0

    @rank_zero_only
    def save(self) -> None:
        if not self._unsaved:
            return
        appended_from, first, before = self._offset, moved_bytes(), moved_bytes()
        super().save()
        moved = moved_bytes() - before - (before - first)  # without the bytes of asking
        self.num_bytes.append(moved / (self._path.stat().st_size - appended_from))


class Growth(GenerativeCallback):
    """Samples what this process holds, and writes it to `growth-RANK.json` in the folder of the run at its end."""

    reads_losses = False

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {"memory": [], "files": [], "threads": []}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % max(1, trainer.max_steps // _SAMPLES) == 0:
            for name, value in held().items():
                self.samples[name].append(value)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        rows = [each for each in trainer.loggers if isinstance(each, TimedCSV) and trainer.is_global_zero]
        found = self.samples | ({"csv_row": rows[0].seconds, "csv_bytes": rows[0].num_bytes} if rows else {})
        (Path(trainer.default_root_dir) / f"growth-{trainer.global_rank}.json").write_text(json.dumps(found))


def held() -> dict[str, int]:
    """Returns resident memory in bytes, and the numbers of open files and of threads, of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def moved_bytes() -> int:
    """Returns the number of bytes that this process has read and written, in files and elsewhere."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"]) + int(counts["wchar"])
