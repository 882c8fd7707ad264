"""What a part of the study defines: its cells, how one is measured, and the tables and plots of the results."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from benchmarks.measure import spread
from benchmarks.study.settings import Settings


class Unavailable(Exception):
    """A cell that this machine cannot measure; the message is the reason, which the report lists."""


def require_device(name: str) -> None:
    """Raises `Unavailable` for `cuda` if torch finds no such device."""
    if name == "cuda" and not torch.cuda.is_available():
        raise Unavailable("torch finds no CUDA device.")


@dataclass(frozen=True)
class Cell:
    """One measurement of a part.

    Args:
        part: name of the part.
        name: readable name, unique in the part.
        settings: everything that `Part.measure` needs, as JSON.
        ranks: number of processes that measure the cell together, each with one device.
        once: whether the cell is not repeated, because it contains its own repeats.
        reason: why the cell cannot be measured here, if that is known beforehand.
    """

    part: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    ranks: int = 1
    once: bool = False
    reason: str | None = None

    def key(self, stamp: Mapping[str, Any]) -> str:
        """Returns a name that changes with the settings of the cell, the machine, the versions and the commit."""
        identity = [self.part, self.settings, self.ranks, stamp]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Result:
    """A cell with what was measured.

    Args:
        cell: the cell.
        repeats: what `Part.measure` returned, once per repeat.
        reason: why there are no measurements; None if there are some, or if the cell has not been measured yet.
        failed: whether the reason is an error rather than a limit of this machine; the cell is run again next time.
        commit: the commit that was measured, if it is another one than now; such a cell is not repeated.
    """

    cell: Cell
    repeats: tuple[dict[str, Any], ...] = ()
    reason: str | None = None
    failed: bool = False
    commit: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the cell."""
        return self.cell.settings

    def spread(self, name: str) -> dict[str, float]:
        """Returns the median and the quartiles of a measured number over the repeats."""
        return spread([repeat[name] for repeat in self.repeats])

    def median(self, name: str) -> float:
        """Returns the median of a measured number over the repeats."""
        return self.spread(name)["median"]


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Args:
        title: heading.
        columns: headings of the columns.
        rows: cells as text.
        notes: sentences below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A plot or a film of the report.

    Args:
        title: heading.
        data: content of the file.
        kind: extension of the file: `svg`, `png` or `gif`.
    """

    title: str
    data: bytes
    kind: str = "svg"


class Part(ABC):
    """A part of the study: subclass it in a file of `benchmarks/study/parts` that has the part's name.

    Attributes:
        title: heading in the report.
        question: sentence that says what the part measures.
    """

    title: ClassVar[str]
    question: ClassVar[str]

    @abstractmethod
    def cells(self, settings: Settings) -> list[Cell]:
        """Returns all cells, also those that cannot be measured here, with their `reason`."""

    @abstractmethod
    def measure(self, cell: Cell) -> dict[str, Any]:
        """Measures a cell and returns the result as JSON; every rank calls it, and that of rank 0 is stored.

        It runs in a process of its own, in which torch.distributed is not initialized; for more than one rank, the
        environment variables are those of torchrun.

        Raises:
            Unavailable: the cell cannot be measured on this machine. A `RefusedInput` counts as one, too.
        """

    @abstractmethod
    def tables(self, results: Mapping[str, Sequence[Result]]) -> list[Table]:
        """Returns the tables.

        Args:
            results: results of all parts that have any, by the name of the part.
        """

    def plots(self, results: Mapping[str, Sequence[Result]]) -> list[Picture]:
        """Returns the plots; none by default."""
        return []
