"""Results on disk: one JSON file for each cell, replaced atomically, so that an interrupted study goes on."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.study.contract import Cell, Result
from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput, one_line

logger = logging.getLogger(__name__)

RESULTS = "results.json"
_SHOWN = 5  # differences of a sentence
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of JSON, and of other content


class Store:
    """The folder of a study.

    Args:
        folder: folder of the study.
        stamp: hardware, versions and commit; results with another stamp are not read.
        any_commit: whether results of other commits are read.
    """

    def __init__(self, folder: Path, stamp: Mapping[str, Any], any_commit: bool = False) -> None:
        self.folder, self.stamp = folder, dict(stamp)
        self.any_commit = any_commit

    def path(self, cell: Cell) -> Path:
        """Returns the file of a cell."""
        return self.folder / "cells" / cell.part / f"{cell.key(self.stamp)}.json"

    def read(self, cell: Cell) -> Result:
        """Returns the result of a cell as far as it has been measured; errors are forgotten."""
        if cell.reason is not None:
            return Result(cell, reason=cell.reason)
        path = self.path(cell)
        if not path.is_file():
            return self._earlier.get(_identity(cell), Result(cell)) if self.any_commit else Result(cell)
        try:
            found = result_of(json.loads(path.read_text())["result"])
        except _DAMAGE:
            logger.warning("%s is damaged: its cell is measured again.", path)
            return Result(cell)
        return Result(cell, found.repeats) if found.failed else Result(cell, found.repeats, found.reason)

    @cached_property
    def _earlier(self) -> dict[str, Result]:
        """Results of other commits by cell, the newest of each."""
        return {
            _identity(result.cell): replace(result, commit=stamp["commit"])
            for stamp, result in self._stored
            if self._fits(stamp) and not result.failed
        }

    @cached_property
    def _stored(self) -> list[tuple[dict[str, Any], Result]]:
        """Stamps and results of all cells in the folder that can be read, the newest last."""
        found = []
        for path in sorted((self.folder / "cells").rglob("*.json"), key=lambda path: path.stat().st_mtime):
            try:
                content = json.loads(path.read_text())
                found.append((dict(content["stamp"]), result_of(content["result"])))
            except _DAMAGE:
                continue
        return found

    def differences(self, cells: Sequence[Cell]) -> str | None:
        """Returns in words why cells of these names, which were measured before, are measured again; None for none."""
        before = {_name(result.cell): (stamp, result.cell) for stamp, result in self._stored if result.repeats}
        again, found = 0, Counter[str]()
        for cell in cells:
            result = self.read(cell)
            if result.repeats or result.reason or _name(cell) not in before:
                continue
            stamp, other = before[_name(cell)]
            old, new = (_flat({**one.settings, "processes": one.ranks}) for one in (other, cell))
            old, new = stamp | old, self.stamp | new
            again += 1
            found.update(f"{key}={old.get(key)}, now {new.get(key)}" for key in new if old.get(key) != new[key])
        if not again:
            return None
        shown = "; ".join(f"{text} ({num} cells)" for text, num in found.most_common(_SHOWN))
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        is_other = any(text.startswith("commit=") for text in found)
        hint = " any_commit=true takes what other commits measured." if is_other else ""
        return f"{again} of {len(cells)} cells were measured before, and are measured again: {shown}{more}.{hint}"

    def _fits(self, stamp: Mapping[str, Any]) -> bool:
        """Returns whether results with a stamp are read."""
        left_out = ("commit",) if self.any_commit else ()
        one, other = ({k: v for k, v in each.items() if k not in left_out} for each in (stamp, self.stamp))
        return one == other

    def write(self, result: Result) -> None:
        """Writes the result of a cell."""
        text = json.dumps({"stamp": self.stamp, "result": asdict(result)}, indent=1)
        with replacing(self.path(result.cell)) as part:
            part.write_text(text + "\n")

    def others(self, names: Collection[str]) -> dict[str, list[Result]]:
        """Returns the results with this stamp of all parts but those named, as the last study of this folder left them.

        Args:
            names: parts whose results are left out.

        Raises:
            RefusedInput: their file is damaged.
        """
        path = self.folder / RESULTS
        stamp: dict[str, Any] = {}
        found: dict[str, list[Result]] = {}
        if path.exists():
            try:
                stamp, found = read_results(path)
            except (*_DAMAGE, OSError) as error:
                raise RefusedInput(
                    f"output={self.folder}: {RESULTS} cannot be read ({one_line(error)}): delete it, or choose another"
                    " output. Cells that were measured have files of their own and are not measured again."
                ) from error
        if not self._fits(stamp):
            return {}
        commit = stamp["commit"] if stamp != self.stamp else None
        return {
            name: [replace(result, commit=result.commit or commit) for result in results]
            for name, results in found.items()
            if name not in names
        }

    def write_all(self, results: Mapping[str, list[Result]], settings: Mapping[str, Any]) -> Path:
        """Writes all results into one file, from which the report can be drawn again; returns its path."""
        parts = {name: [asdict(result) for result in found] for name, found in results.items()}
        path = self.folder / RESULTS
        with replacing(path) as part:
            part.write_text(json.dumps({"stamp": self.stamp, "settings": settings, "parts": parts}, indent=1) + "\n")
        return path


def result_of(content: Mapping[str, Any]) -> Result:
    """Returns a result from its JSON."""
    repeats = tuple(content["repeats"])
    commit = content.get("commit")  # which older files lack
    return Result(Cell(**content["cell"]), repeats, content["reason"], content["failed"], commit)


def _name(cell: Cell) -> tuple[str, str]:
    return cell.part, cell.name


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _identity(cell: Cell) -> str:
    """Returns what tells a cell from others on the same machine."""
    return json.dumps([cell.part, cell.settings, cell.ranks], sort_keys=True)


def read_results(path: str | Path) -> tuple[dict[str, Any], dict[str, list[Result]]]:
    """Returns the stamp and the results by part from a `results.json`."""
    content = json.loads(Path(path).read_text())
    parts = {name: [result_of(result) for result in found] for name, found in content["parts"].items()}
    return dict(content["stamp"]), parts
