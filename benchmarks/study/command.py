"""`python -m benchmarks study`: every table and plot of the studies behind this project, measured on this machine."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.common import environment, turn_order
from benchmarks.study.cells import PRESETS, Cell, Machine, Sizes
from benchmarks.study.parts import PARTS, planned, tables_of
from benchmarks.study.processes import Processes
from benchmarks.study.report import markdown, write_page
from lit_gans.common.atomic import replacing
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest
from lit_gans.config.registry import gans as registered
from lit_gans.data.packed.writer import available_cores

logger = logging.getLogger(__name__)


def study(
    parts: list[str] = [],  # noqa: B006 - read only
    preset: Literal["auto", "full", "cpu", "smoke"] = "auto",
    output: str = "outputs/study",
    repeats: int = 3,
    minutes: float | None = None,
    gans: list[str] = [],  # noqa: B006 - read only
    device: Literal["cpu", "cuda"] | None = None,
    max_ranks: int | None = None,
    any_commit: bool = False,
    sizes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measures the parts of the study and writes `results.json` and a report, `report.html`.

    The cells of all parts are measured in turns, each in processes of its own. A measurement is stored at once: the
    same command goes on where it was interrupted. Cells that this machine cannot measure are listed with the reason. On
    several machines, start the command with torchrun, a process for each device.

    Args:
        parts: names of the parts; an empty list runs all of them.
        preset: `full` has the sizes of the studies, `cpu` is for two cores, `smoke` is tiny and its times are
            meaningless; `auto` is `full` on CUDA and `cpu` elsewhere.
        output: folder of the results and the report.
        repeats: number of measurements of each cell.
        minutes: time after which no cell is repeated; null for no limit.
        gans: names of the GANs; an empty list takes all of them in `batch` and `scaling`, and the study's in `dual`.
        device: device of all parts but `batch`, which measures every device; null uses CUDA if available.
        max_ranks: largest number of processes; null uses the number of devices, or of cores on a CPU.
        any_commit: whether to go on with what another commit measured.
        sizes: values that replace those of the preset, as in '--sizes={steps: 20, batch_sizes: [8, 16]}'; the fields of
            `benchmarks.study.cells.Sizes`.
    """
    _refuse_unknown("parts", parts, PARTS)
    _refuse_unknown("gans", gans, registered())
    where = chosen_device(device).type
    name = preset if preset != "auto" else "full" if where == "cuda" else "cpu"
    given = sizes or {}
    _refuse_unknown("sizes", given, Sizes.__dataclass_fields__)
    chosen = replace(Sizes(**PRESETS[name]), **({"dual_gans": gans} if gans else {}) | given)
    cores = 1 if name == "smoke" else available_cores()
    processes = Processes(cores)
    if processes.rank:
        processes.follow()
        return {}
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    machine = Machine(where, devices, processes.numbers(where, max_ranks), cores, gans or sorted(registered()))
    plan = planned(parts or list(PARTS), chosen, machine)
    results = Results(Path(output) / "results.json", stamp(where), asdict(chosen), plan, any_commit)
    try:
        _run(plan, results, processes, repeats, None if minutes is None else time.monotonic() + 60 * minutes)
    finally:
        processes.close()
    path = Path(output) / "report.html"
    write_page(path, results.rows, {"Machine": results.stamp, "Sizes": results.settings})
    for part, found in tables_of(results.rows).items():
        for table in found if part in {cell.part for cell in plan} else ():
            print(f"\n{part}: {table.title}\n\n{markdown(table.frame)}", *table.notes, sep="\n")
    print("", path, results.path, sep="\n")
    return {"cells": len(plan), "rows": len(results.rows), "failed": results.failed}


def _refuse_unknown(key: str, names: Sequence[str] | Mapping[str, Any], known: Any) -> None:
    for name in names:
        if name not in known:
            raise RefusedInput(f"{key}: there is no '{name}'; {nearest(name, known)}")


def stamp(device: str) -> dict[str, Any]:
    """Returns what all measurements of a study share: hardware, versions and commit."""
    about = environment(torch.device(device))
    about.pop("threads")  # each cell sets its own
    versions = {}
    for package in ("lit-gans", "torchvision", "deepspeed"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    system = {"cores": available_cores(), "system": f"{platform.system()} {platform.machine()}"}
    return {**about, **system, **versions, "commit": commit()}


def commit() -> str | None:
    """Returns the commit of this clone, with a mark if files differ from it; None outside of a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        found, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found} with changes" if changed else found


class Results:
    """The rows of a study, in a file that is replaced after each measurement.

    Args:
        path: the file.
        stamp: what all measurements share.
        settings: sizes of the study.
        plan: cells to be measured.
        any_commit: whether rows of another commit are kept.

    Raises:
        RefusedInput: the file is of another machine, version or commit, has measurements of the same parts that are not
            in the plan, or cannot be read.
    """

    def __init__(
        self, path: Path, stamp: dict[str, Any], settings: dict[str, Any], plan: Sequence[Cell], any_commit: bool
    ) -> None:
        self.path, self.stamp, self.settings = path, stamp, settings
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            try:
                content = json.loads(path.read_text())
                before, rows = dict(content["stamp"]), list(content["rows"])
            except (ValueError, KeyError, TypeError) as error:
                raise RefusedInput(f"{path} cannot be read ({error}): delete it, or choose another output.") from error
            different = [key for key, value in stamp.items() if before.get(key) != value]
            if different and not (any_commit and different == ["commit"]):
                hint = " any_commit=true goes on with them." if different == ["commit"] else ""
                shown = ", ".join(f"{key}={before.get(key)}, now {stamp[key]}" for key in different)
                raise RefusedInput(f"{path} was measured with {shown}: delete it, or choose another output.{hint}")
            parts, keys = {cell.part for cell in plan}, {key_of(cell) for cell in plan}
            others = [row for row in rows if row["part"] in parts and row["key"] not in keys]
            lost = [f"{row['part']}: {row['cell']}" for row in others if "reason" not in row]
            if lost:
                raise RefusedInput(
                    f"{path} has {len(lost)} measurements of other GANs, sizes or presets, such as {lost[0]}, which"
                    " would be lost: choose another output, or delete it."
                )
            self.rows = [row for row in rows if row not in others and "failed" not in row]

    def of(self, cell: Cell) -> list[dict[str, Any]]:
        """Returns the rows of a cell."""
        key = key_of(cell)
        return [row for row in self.rows if row["key"] == key]

    def add(self, cell: Cell, found: Mapping[str, Any]) -> None:
        """Adds a row and writes the file."""
        about = {"part": cell.part, "cell": cell.name, "key": key_of(cell), "ranks": cell.ranks}
        self.rows.append({**about, **cell.labels, **found})
        content = {"stamp": self.stamp, "settings": self.settings, "rows": self.rows}
        with replacing(self.path) as part:
            part.write_text(json.dumps(content) + "\n")

    @property
    def failed(self) -> list[str]:
        """Names of the cells that ended in an error."""
        return [f"{row['part']}: {row['cell']}" for row in self.rows if "failed" in row]


def key_of(cell: Cell) -> str:
    """Returns a name that changes with everything that a cell is."""
    return hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:20]


def _run(plan: Sequence[Cell], results: Results, processes: Processes, repeats: int, until: float | None) -> None:
    """Measures all cells once, then all once more in reversed order, and so on, until each has its repeats."""
    by_name = {f"{cell.part}: {cell.name}": cell for cell in plan}
    for index in range(repeats):
        for name in turn_order(by_name, index + 1):
            cell, before = by_name[name], results.of(by_name[name])
            late = until is not None and time.monotonic() > until
            if len(before) > index or any("reason" in row for row in before) or (index and (cell.once or late)):
                continue
            if cell.reason is not None:
                results.add(cell, {"reason": cell.reason})
                continue
            start = time.perf_counter()
            kind, content = processes.measure(cell)
            seconds = time.perf_counter() - start
            logger.info("%s: %s in %.0f s", name, kind, seconds)
            if kind == "result":
                results.add(cell, {**content, "cell_seconds": seconds})
            elif kind == "reason":
                results.add(cell, {"reason": content})
            else:
                logger.warning("%s failed:\n%s", name, content)
                results.add(cell, {"reason": f"failed: {content.strip().splitlines()[-1]}", "failed": True})
