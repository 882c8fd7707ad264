"""CSV logger with one row per iteration, whose file a resumed run continues."""

from __future__ import annotations

import csv
import io
import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lit_gans.common.atomic import replacing, synchronize, writing
from lit_gans.common.errors import FailedWrite

logger = logging.getLogger(__name__)

Row = dict[str, float]


class CSVMetrics(Logger):
    """Writes `metrics.csv` to a folder, with one row per iteration in ascending order.

    Rows are appended; the file is rewritten only when a new column appears, or for a row that belongs further up, so
    that the cost is linear in the length of the run. A resumed run continues the file from its first iteration: rows
    that an interrupted run wrote after its last checkpoint are dropped, as are truncated lines. (Lightning's
    `CSVLogger` deletes the file of the resumed run and writes one row per call.)

    Args:
        save_dir: folder of the file.
        flush_every: number of calls between two writes to the file.
    """

    def __init__(self, save_dir: str, flush_every: int = 10) -> None:
        super().__init__()
        self._path = Path(save_dir) / "metrics.csv"
        self.flush_every = flush_every
        self._columns: list[str] = []  # of the file, if this process has written it
        self._rows: dict[int, Row] | None = None  # rows from byte `_offset` on; the last one may still receive values
        self._offset = 0
        self._unsaved = 0  # calls

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
        if self._rows is None:  # of a resumed run, the row of `step` has what was measured before the checkpoint
            self._rows = {number: row for number, row in self._read().items() if number <= step} if step else {}
        elif self._offset and step < min(self._rows):
            self._rows, self._offset = self._read() | self._rows, 0
        self._rows.setdefault(step, {}).update({name: float(value) for name, value in metrics.items()})
        self._unsaved += 1
        if self._unsaved >= self.flush_every:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if self._unsaved:
            with writing(self._path):
                self._save(self._rows or {})

    def _save(self, rows: dict[int, Row]) -> None:
        names = {name for row in rows.values() for name in row}
        if self._offset and names <= set(self._columns) and self._path.is_file():
            *lines, last = self._lines(rows)
            with self._path.open("r+b") as file:
                file.seek(self._offset)  # of the last line, which a killed process must not lose: one write
                file.write(b"".join([*lines, last]))
                file.truncate()
        else:
            rows = self._read() | rows if self._offset else rows
            self._columns = sorted({name for row in rows.values() for name in row})
            self._offset = 0
            *lines, last = [_line(["step", *self._columns]), *self._lines(rows)]
            with replacing(self._path) as part:
                part.write_bytes(b"".join([*lines, last]))
        self._offset += sum(map(len, lines))
        self._rows = dict([max(rows.items())])
        self._unsaved = 0

    @rank_zero_only
    def save_iteration(self, step: int, values: dict[str, float]) -> None:
        """Writes the row of an iteration durably, before the checkpoint of that iteration, which never lacks its row.

        The row may be logged again.
        """
        self.log_metrics(values, step)
        self.save()
        with writing(self._path):
            synchronize(self._path)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        try:
            self.save()
        except FailedWrite as error:
            if status != "failed":
                raise
            logger.warning("%s", error)  # the run ends with the error that came first

    def _lines(self, rows: dict[int, Row]) -> list[bytes]:
        return [_line([step, *(row.get(name, "") for name in self._columns)]) for step, row in sorted(rows.items())]

    def _read(self) -> dict[int, Row]:
        """Returns the rows of the file without empty cells; leaves out damaged lines with a warning."""
        if not self._path.is_file():
            return {}
        header, *lines = self._path.read_text(errors="replace").splitlines(keepends=True) or [""]
        if not (
            header.endswith("\n") and header.startswith("step") and header[:-1].isprintable() and "\ufffd" not in header
        ):
            logger.warning("%s is damaged: its header cannot be read, and its rows are left out.", self._path)
            return {}
        columns, rows, damaged = next(csv.reader([header]))[1:], {}, []
        for number, line in enumerate(lines, start=2):
            try:
                ((step, *cells),) = csv.reader([line])
                values = {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
                if not line.endswith("\n"):
                    raise ValueError("truncated")
                rows[int(step)] = values
            except (ValueError, csv.Error):
                damaged.append(str(number))
        if damaged:
            where = ", ".join(damaged)
            logger.warning("%s is damaged: rows that cannot be read are left out, line %s.", self._path, where)
        return rows


def _line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()
