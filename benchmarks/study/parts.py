"""The parts of the study: what each measures, and what it shows of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.study import cells, plots, tables
from benchmarks.study.cells import Cell, Machine, Sizes
from benchmarks.study.plots import Picture
from benchmarks.study.tables import Rows, Table


class Part(NamedTuple):
    """A part of the study.

    Attributes:
        heading, question: of its section of the report.
        headline: column of its tables whose smallest and largest values the summary has, and what they are.
        cells: yields what it measures.
        tables, pictures: make the tables and plots of what was measured.
    """

    heading: str
    question: str
    headline: tuple[str, str]
    cells: Callable[[Sizes, Machine], Iterator[Cell]]
    tables: Callable[[Rows], list[Table]]
    pictures: Callable[[Rows], Iterator[Picture]]


PARTS = {
    "batch": Part(
        "Batch sizes",
        "Real images per second, seconds for an epoch of CelebA's 202,599 images, seconds of the measured"
        " training from start to end, and peak memory, by batch size. Images per second count each real image of a"
        " generator iteration once, as the scaling study does; all critic steps of an iteration are in its time.",
        ("images/s", "images per second"),
        cells.batch,
        tables.batch,
        plots.batch,
    ),
    "scaling": Part(
        "Scaling",
        "Real images per second of all processes together under strategy=ddp, and efficiency: the share of n"
        " times the speed of one process. Weak scaling has the same batch in each process, strong scaling the same"
        " in all. On a CPU the processes share its cores: n processes that lose nothing have an efficiency of 1 /"
        " n.",
        ("efficiency", "efficiency of several processes"),
        cells.scaling,
        tables.scaling,
        plots.scaling,
    ),
    "overlap": Part(
        "Overlap of computation and communication",
        "Milliseconds of a step in which a process only computes, only communicates, does both, only waits for"
        " data, or does nothing. On a CPU, from the times at which DDP starts and finishes each all-reduce, and"
        " the host waits for it; on CUDA, from the profiler's kernels. Real images from files, packed as in a"
        " training.",
        ("communication", "share of communication alone"),
        cells.overlap,
        tables.overlap,
        plots.overlap,
    ),
    "optimizations": Part(
        "Optimizations",
        "Which setting makes a step faster, and do the losses after the same images stay the same?",
        ("to baseline", "speed as a multiple of the baseline's"),
        cells.optimizations,
        tables.optimizations,
        plots.optimizations,
    ),
    "deepspeed": Part(
        "DeepSpeed's tutorial",
        "Seconds for an epoch of CelebA's 202,599 images with the tutorial's networks: the plain"
        " loop on one device (three backward passes, losses fetched in each step), strategy=ddp, and one engine"
        " for each network.",
        ("times as fast as the plain loop", "speed as a multiple of the plain loop's"),
        cells.deepspeed,
        tables.deepspeed,
        plots.deepspeed,
    ),
    "dual": Part(
        "Dual discriminators",
        "Scores by iterations and by seconds of training (without the measurements), seconds until a given FID,"
        " and how busy processor and device are. A digit classifier or EfficientNet-Lite0 judges: the scores are"
        " comparable with each other, not with the study's FID on 64 features.",
        ("FID", "FID at the end"),
        cells.dual,
        tables.dual,
        plots.dual,
    ),
    "lightweight": Part(
        "Lightweight networks",
        "Parameters and multiply-adds of one image (forward, torch's counter), images per second, speed-up over"
        " plain convolutions of full width, and FID on the digits after equal time.",
        ("speed-up", "speed as a multiple of plain convolutions'"),
        cells.lightweight,
        tables.lightweight,
        plots.lightweight,
    ),
    "projection": Part(
        "Projection",
        "A cost model (computation per step, bytes and messages per step, latency and bandwidth of each level of"
        " the network, overlap) predicts images per second on 1 to 1,024 devices. It is compared with steps of"
        " several processes, and with the scaling study's tables.",
        ("error", "error of the predictions"),
        cells.projection,
        tables.projection,
        plots.projection,
    ),
}


def planned(parts: Sequence[str], sizes: Sizes, machine: Machine) -> list[Cell]:
    """Returns the cells of the parts."""
    return [cell for part in parts for cell in PARTS[part].cells(sizes, machine)]


def tables_of(rows: Rows) -> dict[str, list[Table]]:
    """Returns the tables of all parts that have rows, in the order of the report."""
    found = {}
    for name, part in PARTS.items():
        if any(row["part"] == name for row in rows):
            own = part.tables(rows) if len(tables.measured(rows, name)) else []
            found[name] = [table for table in [*own, tables.missing(rows, name)] if len(table.frame)]
    return found


def summary(name: str, found: Sequence[Table]) -> str:
    """Returns where the headline of a part is smallest and largest: among the rows with the most processes."""
    (column, what), values = PARTS[name].headline, []
    shown = [table for table in found if column in table.frame]
    for title, frame, _ in shown:
        rows = frame[frame["processes"] == frame["processes"].max()] if "processes" in frame else frame
        for row in rows.to_dict("records"):
            number = re.match(r"[-+]?[\d.,]*\d", str(row[column]))
            where = [title] if len(shown) > 1 else []
            where += [str(row[frame.columns[0]])]
            where += [f"{key} {row[key]}" for key in ("batch", "processes", "width", "nodes") if key in row]
            values += [(float(number[0].replace(",", "")), str(row[column]), ", ".join(where))] if number else []
    if not values:
        return ""
    (_, low, at_low), (_, high, at_high) = min(values), max(values)
    return f"{what} from {low} ({at_low}) to {high} ({at_high})."


def pictures_of(rows: Rows, name: str) -> Iterator[Picture]:
    """Yields the plots of a part, and its film, if anything of it was measured."""
    if len(tables.measured(rows, name)):
        yield from PARTS[name].pictures(rows)
