"""`lit-gans bench study`: every table and plot of the studies behind this project, measured on this machine."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.report import show, table_of
from benchmarks.study.contract import Cell
from benchmarks.study.launch import Launcher, OutsideLauncher, launcher
from benchmarks.study.registry import parts as registered_parts
from benchmarks.study.report import sections, write
from benchmarks.study.runner import run
from benchmarks.study.settings import Settings
from benchmarks.study.settings import preset as preset_settings
from benchmarks.study.stamp import stamp
from benchmarks.study.store import Store
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest, refuse_below
from lit_gans.config.registry import gans as registered_gans
from lit_gans.config.run_folder import refuse_folder
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
    """Measures the parts of the study and writes a report: `report.html`, `report.md` and `results.json`.

    The cells of all parts are measured in turns, each in processes of its own; the report has medians and quartiles. A
    cell is stored once it has been measured: the same command goes on where it was interrupted, and measures a cell
    again only if its settings, the machine, a version or the commit has changed. Cells that this machine cannot measure
    are listed with the reason. On several machines, start the command with torchrun or srun, a process for each device.

    Args:
        parts: names of the parts; an empty list runs all of them.
        preset: `full` has the sizes of the studies, `cpu` takes under an hour on two cores, `smoke` is tiny and its
            times are meaningless; `auto` is `full` on CUDA and `cpu` elsewhere.
        output: folder of the results and the report.
        repeats: number of measurements of each cell.
        minutes: time after which no cell is repeated; null for no limit.
        gans: names of the GANs; an empty list takes all of them in `batch` and `scaling`, and the study's in `dual`.
        device: device of all parts but `batch`, which measures every device; null uses CUDA if available.
        max_ranks: largest number of processes; null uses the number of devices, or of cores on a CPU.
        any_commit: whether cells that another commit measured are taken as they are, which the report says; otherwise
            they are measured again.
        sizes: values that replace those of the preset, as in `'sizes={steps:20,batch_sizes:[8,16]}'`, see below.

    Raises:
        RefusedInput: there is no such part, GAN or size, a number is too small, or the folder cannot be used.
    """
    chosen = registered_parts(parts)
    refuse_below(1, repeats=repeats, max_ranks=max_ranks)
    refuse_below(0, minutes=minutes)
    refuse_folder(Path(output) / "cells", "output")
    cores = 1 if preset == "smoke" else available_cores()
    processes = launcher(cores)
    if isinstance(processes, OutsideLauncher) and processes.rank:
        processes.follow()
        return {}
    settings = _settings(processes, chosen_device(device).type, cores, gans, max_ranks)
    settings = preset_settings(preset, settings, sizes or {})
    cells = [cell for part in chosen.values() for cell in part.cells(settings)]
    store = Store(Path(output), stamp(settings.device, processes.nodes), any_commit)
    return _measure(cells, store, processes, settings, repeats, minutes)


def _settings(processes: Launcher, device: str, cores: int, gans: Sequence[str], max_ranks: int | None) -> Settings:
    """Returns the settings of this machine.

    Raises:
        RefusedInput: there is no such GAN.
    """
    known = registered_gans()
    for name in gans:
        if name not in known:
            raise RefusedInput(f"gans: there is no GAN '{name}'; {nearest(name, known)}")
    settings = Settings(
        device=device,
        devices=("cpu", "cuda") if torch.cuda.is_available() else ("cpu",),
        ranks=_ranks(processes, device, max_ranks),
        cores=cores,
        gans=tuple(gans or sorted(known)),
    )
    return replace(settings, dual_gans=tuple(gans)) if gans else settings


def _ranks(processes: Launcher, device: str, most: int | None) -> tuple[int, ...]:
    """Returns the numbers of processes to measure: powers of two on one machine, then multiples of the machines."""
    here = torch.cuda.device_count() if device == "cuda" else available_cores()
    if isinstance(processes, OutsideLauncher):
        here = processes.local_ranks
    elif most is not None and device == "cpu":
        here = most
    numbers = {2**power for power in range(here.bit_length()) if 2**power <= here} | {here}
    doubled = {here * 2**power for power in range(processes.nodes.bit_length()) if 2**power <= processes.nodes}
    numbers |= doubled | {here * processes.nodes}
    return tuple(sorted(number for number in numbers if most is None or number <= most))


def _measure(
    cells: list[Cell], store: Store, processes: Launcher, settings: Settings, repeats: int, minutes: float | None
) -> dict[str, Any]:
    """Measures the cells, writes and shows the report, and returns the numbers of cells by outcome."""
    names = {cell.part for cell in cells}
    try:
        found, different = store.others(names), store.differences(cells)
        if different is not None:
            logger.warning("%s: %s", store.folder, different)
        results = run(cells, store, processes.measure, repeats, minutes)
    finally:
        processes.close()
    for result in results:
        found.setdefault(result.cell.part, []).append(result)
    file = store.write_all(found, settings.to_dict())
    pages = sections(registered_parts(), found)
    others = Counter(result.commit for results in found.values() for result in results if result.commit is not None)
    about = {"other commits": ", ".join(f"{name} ({num} cells)" for name, num in others.items())} if others else {}
    written = write(store.folder, pages, store.stamp | about, settings.to_dict())
    tables = []
    for page in pages:
        for table in page.tables if page.name in names else ():
            tables.append(table_of(f"{page.title}: {table.title}", *table.columns))
            for row in table.rows:
                tables[-1].add_row(*row)
    show(tables)
    print(*written, file, sep="\n")
    failed = [result.cell.name for result in results if result.failed]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(results)} cells failed: {', '.join(failed)}; see above.")
    measured = sum(bool(result.repeats) for result in results)
    return {"cells": len(results), "measured": measured, "unavailable": len(results) - measured}
