"""Results on disk: one JSON file for each cell, replaced atomically, so that an interrupted study goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lit_gans.benchmark.study.contract import Cell, Result
from lit_gans.common.atomic import replacing

logger = logging.getLogger(__name__)

RESULTS = "results.json"
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
        found = {}
        for path in sorted((self.folder / "cells").rglob("*.json"), key=lambda path: path.stat().st_mtime):
            try:
                content = json.loads(path.read_text())
                stamp, result = dict(content["stamp"]), result_of(content["result"])
            except _DAMAGE:
                continue
            if self._fits(stamp) and not result.failed:
                found[_identity(result.cell)] = replace(result, commit=stamp["commit"])
        return found

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
        """
        path = self.folder / RESULTS
        stamp: dict[str, Any] = {}
        found: dict[str, list[Result]] = {}
        if path.is_file():
            try:
                stamp, found = read_results(path)
            except _DAMAGE:
                logger.warning("%s is damaged and is written again: only this study's parts are in it.", path)
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


def _identity(cell: Cell) -> str:
    """Returns what tells a cell from others on the same machine."""
    return json.dumps([cell.part, cell.settings, cell.ranks], sort_keys=True)


def read_results(path: str | Path) -> tuple[dict[str, Any], dict[str, list[Result]]]:
    """Returns the stamp and the results by part from a `results.json`."""
    content = json.loads(Path(path).read_text())
    parts = {name: [result_of(result) for result in found] for name, found in content["parts"].items()}
    return content["stamp"], parts
