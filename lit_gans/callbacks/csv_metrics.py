"""CSV logger with one row per iteration, whose file a resumed run continues."""

from __future__ import annotations

import csv
import io
import logging
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lit_gans.common.atomic import replacing, synchronize, writing
from lit_gans.common.errors import FailedWrite

logger = logging.getLogger(__name__)

Row = dict[str, Any]
_UNREADABLE = "\ufffd"  # of bytes that are no text
_DIGITS = 16  # a step with more is damage


class CSVMetrics(Logger):
    """Writes `metrics.csv` to a folder, with one row per iteration in ascending order.

    Rows are appended; the file is rewritten only when a new column appears, so that the cost is linear in the length
    of the run. A resumed run continues the file from its first iteration: rows that an interrupted run wrote after its
    last checkpoint are dropped, as are truncated lines. (Lightning's `CSVLogger` deletes the file of the resumed run
    and writes one row per call.)

    Args:
        save_dir: folder of the file.
        flush_every: number of calls between two writes to the file.
    """

    def __init__(self, save_dir: str, flush_every: int = 10) -> None:
        super().__init__()
        self._path = Path(save_dir) / "metrics.csv"
        self.flush_every = flush_every
        self._columns: list[str] | None = None  # of the file; None until something is logged
        self._rows: dict[int, Row] = {}  # rows from byte `_offset` on; the last row may still receive values
        self._offset = 0
        self._calls = self._unsaved = 0
        self._durable: tuple[int, dict[str, float]] | None = None  # what `save_iteration` wrote last
        self._late = False  # whether a row belongs before the last line of the file

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
        if self._columns is None:
            self._continue(step)
        self._late |= bool(self._rows) and step < min(self._rows)
        self._rows.setdefault(step, {}).update({name: float(value) for name, value in metrics.items()})
        self._calls, self._unsaved = self._calls + 1, self._unsaved + 1
        if self._calls % self.flush_every == 0:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if not self._unsaved:
            return
        with writing(self._path):
            self._save()

    def _save(self) -> None:
        columns = self._columns or []
        has_columns = all(row.keys() <= set(columns) for row in self._rows.values())
        if columns and has_columns and not self._late and self._path.is_file():
            self._append(columns)
        else:
            self._rewrite(self._read() if columns else {})
        self._unsaved, self._late = 0, False

    @rank_zero_only
    def save_iteration(self, step: int, values: dict[str, float]) -> None:
        """Writes the row of an iteration durably, before the checkpoint of that iteration, which never lacks its row.

        The row may be logged again. Of two checkpoints in one iteration, the second has nothing to write.
        """
        if not self._unsaved and self._durable == (step, values):
            return
        self.log_metrics(values, step)
        self.save()
        with writing(self._path):
            synchronize(self._path)
        self._durable = (step, dict(values))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        try:
            self.save()
        except FailedWrite as error:
            if status != "failed":
                raise
            logger.warning("%s", error)  # the run ends with the error that came first

    def _continue(self, step: int) -> None:
        """Keeps the rows of an earlier run up to `step`: the row of `step` has what was measured before the checkpoint,
        and its losses are logged again.
        """
        self._columns = []
        kept = {number: row for number, row in self._read().items() if number <= step} if step else {}
        if kept:
            self._rewrite(kept)

    def _read(self) -> dict[int, Row]:
        """Returns the rows of the file without empty cells; leaves out truncated and damaged lines with a warning."""
        if not self._path.is_file():
            return {}
        header, *lines = self._path.read_text(errors="replace").splitlines(keepends=True) or [""]
        good_header = header.endswith("\n") and header[:-1].isprintable() and _UNREADABLE not in header
        if not good_header:
            logger.warning(
                "%s is damaged: its header cannot be read, and its %d rows are left out.", self._path, len(lines)
            )
            return {}
        rows = [_parsed(header, line) for line in lines]
        damaged = [str(number) for number, row in enumerate(rows, start=2) if row is None]
        if damaged:
            logger.warning(
                "%s is damaged: %d of its %d rows cannot be read and are left out, line %s.",
                *(self._path, len(damaged), len(rows), ", ".join(damaged)),
            )
        return dict(row for row in rows if row is not None)

    def _append(self, columns: list[str]) -> None:
        """Writes rows, starting at the last line of the file."""
        *lines, last = _lines(columns, sorted(self._rows.items()))
        with self._path.open("r+b") as file:
            file.seek(self._offset)
            file.write(b"".join([*lines, last]))  # over the last line, which a killed process would else have lost
            file.truncate()
        self._keep_last(self._offset + sum(map(len, lines)))

    def _rewrite(self, rows: dict[int, Row]) -> None:
        """Writes `rows` and all pending rows, with all of their columns."""
        for step, row in self._rows.items():
            rows[step] = rows.get(step, {}) | row
        self._rows = rows
        self._columns = sorted({name for row in rows.values() for name in row})
        header = {name: name for name in self._columns}
        *lines, last = _lines(self._columns, [("step", header), *sorted(rows.items())])
        with replacing(self._path) as part:
            part.write_bytes(b"".join([*lines, last]))
        self._keep_last(sum(map(len, lines)))

    def _keep_last(self, offset: int) -> None:
        step = max(self._rows)
        self._rows, self._offset = {step: self._rows[step]}, offset


def _parsed(header: str, line: str) -> tuple[int, Row] | None:
    """Returns a row and its step, or None if the line is damaged."""
    try:
        (names,), (cells,) = csv.reader([header]), csv.reader([line])
        row = dict(zip(names, cells, strict=True))
        step = row.pop("step")
        for value in row.values():
            float(value or 0)
    except (ValueError, KeyError, csv.Error):
        return None
    if not (line.endswith("\n") and step.isdecimal() and len(step) < _DIGITS):
        return None
    return int(step), {name: value for name, value in row.items() if value}


def _lines(columns: list[str], rows: Iterable[tuple[int | str, Row]]) -> list[bytes]:
    lines = []
    for step, row in rows:
        text = io.StringIO()
        csv.writer(text).writerow([step, *(row.get(name, "") for name in columns)])
        lines.append(text.getvalue().encode())
    return lines
