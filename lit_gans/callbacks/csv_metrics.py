"""`metrics.csv` of a run, one row an iteration, which a resumed run continues."""

from __future__ import annotations

import csv
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only


class CSVMetrics(Logger):
    """Writes `metrics.csv` into a folder. (Lightning's `CSVLogger` deletes the file that a resumed run should go on
    with, and writes a row for each call instead of each step.)

    Args:
        save_dir: the folder.
        flush_every: calls between two writes of the file.
    """

    def __init__(self, save_dir: str, flush_every: int = 10) -> None:
        super().__init__()
        self._path = Path(save_dir) / "metrics.csv"
        self.flush_every = flush_every
        self._rows: dict[int, dict[str, Any]] | None = None
        self._calls = 0

    name = "csv"
    version = ""

    @property
    def save_dir(self) -> str:
        return str(self._path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the run folder holds the configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        step = int(step or 0)
        if self._rows is None:  # what an interrupted run wrote after its last checkpoint is written again
            self._rows = {number: row for number, row in self._read().items() if number < step}
        self._rows.setdefault(step, {}).update({name: float(value) for name, value in metrics.items()})
        self._calls += 1
        if self._calls % self.flush_every == 0:
            self.save()

    def _read(self) -> dict[int, dict[str, Any]]:
        if not self._path.is_file():
            return {}
        with self._path.open(newline="") as file:
            rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
        return {int(row.pop("step")): row for row in rows}

    @rank_zero_only
    def save(self) -> None:
        if not self._rows:
            return
        names = sorted({name for row in self._rows.values() for name in row})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".csv.part")
        with unfinished.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["step", *names])
            writer.writeheader()
            writer.writerows({"step": step, **row} for step, row in sorted(self._rows.items()))
        os.replace(unfinished, self._path)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()
