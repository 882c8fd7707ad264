"""Timers, counters, interleaving and reports that the benchmarks share."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import lightning
import torch
from lightning.pytorch import Trainer
from rich.console import Console
from rich.table import Table

from lit_gans.cli.commands.bench import machine

MEBIBYTE = 2**20
T = TypeVar("T")


def environment(device: torch.device) -> dict[str, Any]:
    """Returns the properties of the machine on which timings depend: device, number of threads and versions."""
    return machine(device) | {"lightning": lightning.__version__}


def quiet_trainer(accelerator: str, **settings: Any) -> Trainer:
    """Returns a trainer that neither prints nor writes files, unless `settings` say otherwise."""
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(accelerator=accelerator, **{**silent, "use_distributed_sampler": False, **settings})


def now(device: torch.device) -> float:
    """Returns the time in seconds once the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def matrix_product_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Returns the floating-point operations per second of the fastest of ten products of square matrices."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times: list[float] = []
    while len(times) < 10 and sum(times) < 2:
        start = now(device)
        torch.matmul(left, right)
        times.append(now(device) - start)
    return 2 * size**3 / min(times)


def peak_process_memory() -> int | None:
    """Returns the peak main memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# ---- turns


def turn_order(names: Iterable[str], index: int) -> list[str]:
    """Returns the order of the contenders in a round, which is reversed in every other round."""
    return list(names)[:: 1 if index % 2 else -1]


def take_turns(works: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Runs all contenders once per round, so that all run under the same conditions; returns results by name."""
    results: dict[str, list[T]] = {name: [] for name in works}
    for index in range(rounds):
        for name in turn_order(works, index):
            results[name].append(works[name]())
    return results


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median and the quartiles."""
    if len(values) < 2:
        return dict.fromkeys(("median", "lower_quartile", "upper_quartile"), values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower_quartile": lower, "upper_quartile": upper}


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """Returns the spread of the ratios within each round, which do not depend on changes in the machine's speed."""
    return spread([one / other for one, other in zip(numerators, denominators, strict=True)])


# ---- reports


def shown(values: Mapping[str, float], style: str = ".0f", scale: float = 1) -> str:
    """Returns a spread as text: `2.05 (2.01 to 2.11)`."""
    median, lower, upper = (f"{scale * values[key]:{style}}" for key in ("median", "lower_quartile", "upper_quartile"))
    return f"{median} ({lower} to {upper})"


def report(
    result: dict[str, Any], tables: Mapping[str, Sequence[Mapping[str, str]]], notes: Sequence[str], output: str | None
) -> dict[str, Any]:
    """Prints tables, notes and the result as a line of JSON, and returns the result.

    Args:
        result: content of the JSON.
        tables: rows of each table by its title.
        notes: sentences below the tables.
        output: optional JSON file to write.
    """
    console = Console(width=None if sys.stdout.isatty() else 200)
    for title, rows in tables.items():
        table = Table(*dict.fromkeys(key for row in rows for key in row), title=title)
        for row in rows:
            table.add_row(*(row.get(str(column.header), "") for column in table.columns))
        console.print(table)
    print(*notes, json.dumps(result), sep="\n")
    if output is not None:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(output).write_text(json.dumps(result, indent=2) + "\n")
    return result
