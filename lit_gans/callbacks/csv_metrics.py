"""CSV logger with one row per logged iteration. A resumed run appends to the same file."""

from __future__ import annotations

import csv
import io
import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lit_gans.common.atomic import replacing, set_aside, synchronize, writing

logger = logging.getLogger(__name__)

Row = dict[str, float]
_TAIL = 3  # number of last rows that can still change, because losses may be logged after a later measurement


class CSVMetrics(Logger):
    """Writes `metrics.csv` to a folder, with one row per logged iteration in ascending order.

    A row combines the values of measurements and the values that Lightning logs at the end of the iteration. If a
    checkpoint is saved at the end of the iteration, Lightning's values are written before the checkpoint.

    Rows are appended. The file is rewritten only if a column is new, or if a row belongs before the last rows. The cost
    is therefore linear in the length of the run. A resumed run continues the file: it drops truncated lines, and rows
    that the interrupted run wrote after its last checkpoint. Lightning's `CSVLogger` instead deletes the file of the
    resumed run and writes one row per call.

    A run continues an existing file only if a callback of this package, such as `RunCheckpoint`, has called
    `resume_at`. Otherwise, the existing file is renamed.

    Args:
        save_dir: folder of the file.
    """

    name = "csv"
    version = ""

    def __init__(self, save_dir: str) -> None:
        super().__init__()
        self._path = Path(save_dir) / "metrics.csv"
        self._columns: list[str] | None = None  # columns of the file; None until this process writes it
        self._tail: dict[int, Row] = {}  # last rows of the file, to which values can still be added
        self._offset = 0  # byte offset of the first row of `_tail`
        self._continues = False  # whether an existing file belongs to this run
        self._resumed_at: int | None = None  # iteration at which this run was resumed, if it is known

    @property
    def save_dir(self) -> str:
        return str(self._path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing, because the run folder contains the configuration."""

    def begin_run(self) -> None:
        """Makes the first write rename an existing file, because that file belongs to another run."""
        self._continues = False

    def resume_at(self, step: int) -> None:
        """Makes the first write keep the rows of an existing file up to an iteration, because they are of this run."""
        self._continues, self._resumed_at = True, step

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        step = int(step or 0)
        row = {name: float(value) for name, value in metrics.items()}
        known = self._columns is not None and row.keys() <= set(self._columns) and self._path.is_file()
        with writing(self._path):
            if known and step >= min(self._tail):
                self._tail[step] = self._tail.get(step, {}) | row
                self._append()
            else:
                self._rewrite(step, row)

    def finalize(self, status: str) -> None:
        """Called when a training ends. The same logger can then log another run, or continue this run."""
        self._columns, self._tail, self._offset, self._continues, self._resumed_at = None, {}, 0, True, None

    @rank_zero_only
    def save_iteration(self, step: int, values: dict[str, float]) -> None:
        """Writes the row of an iteration and synchronizes the file with the disk.

        Called before the iteration's checkpoint is saved, so that no checkpoint exists without its row. Lightning may
        log the same row again.
        """
        self.log_metrics(values, step)
        with writing(self._path):
            synchronize(self._path)

    def _append(self) -> None:
        """Replaces the last rows of the file."""
        lines = self._lines(self._tail)
        with self._path.open("r+b") as file:
            file.seek(self._offset)
            file.write(b"".join(lines))  # a single write, so that a killed process does not lose the old rows
            file.truncate()
        self._keep_tail(self._tail, lines)

    def _rewrite(self, step: int, row: Row) -> None:
        """Rewrites the file, and adds the row of `step`."""
        if self._columns is not None:
            rows = read_rows(self._path) | self._tail
        elif step and self._continues:  # keeps the row of the checkpoint's iteration, which a measurement might have
            last = step if self._resumed_at is None else self._resumed_at
            rows = {number: values for number, values in read_rows(self._path).items() if number <= last}
        else:
            set_aside(self._path)
            rows = {}
        rows[step] = rows.get(step, {}) | row
        self._columns = sorted({name for values in rows.values() for name in values})
        header, lines = _line(["step", *self._columns]), self._lines(rows)
        with replacing(self._path) as part:
            part.write_bytes(b"".join([header, *lines]))
        self._offset = len(header)
        self._keep_tail(rows, lines)

    def _keep_tail(self, rows: dict[int, Row], lines: list[bytes]) -> None:
        self._offset += sum(map(len, lines[:-_TAIL]))
        self._tail = {step: rows[step] for step in sorted(rows)[-_TAIL:]}

    def _lines(self, rows: dict[int, Row]) -> list[bytes]:
        columns = self._columns or []
        return [_line([step, *(row.get(name, "") for name in columns)]) for step, row in sorted(rows.items())]


def read_rows(path: Path) -> dict[int, Row]:
    """Returns the rows of a `metrics.csv` by step, without empty cells. Skips damaged lines and logs a warning."""
    if not path.is_file():
        return {}
    header, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) or [""]
    is_complete = header.startswith("step") and header.endswith("\n") and header[:-1].isprintable()
    if not is_complete or "\ufffd" in header:
        logger.warning("%s is damaged: its header cannot be read, so all rows are left out.", path)
        return {}
    columns = next(csv.reader([header]))[1:]
    rows: dict[int, Row] = {}
    damaged: list[str] = []
    for number, line in enumerate(lines, start=2):
        try:
            ((step, *cells),) = csv.reader([line])
            values = {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
            if not line.endswith("\n"):
                raise ValueError("truncated")
            rows[int(step)] = rows.get(int(step), {}) | values
        except (ValueError, csv.Error):
            damaged.append(str(number))
    if damaged:
        numbers = ", ".join(damaged)
        logger.warning("%s is damaged. Lines that cannot be read are left out: %s.", path, numbers)
    return rows


def _line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode(errors="backslashreplace")
