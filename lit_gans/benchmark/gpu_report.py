"""Tables and notes of `lit-gans bench gpu`."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from lit_gans.benchmark.measure import MEBIBYTE
from lit_gans.benchmark.report import median, quartiles, table_of

_LEAST_SPEEDUP, _LARGEST_COST = 3.0, 0.03  # goals: over the tutorial loop, and over the loop without Lightning


def tables(result: dict[str, Any]) -> list[Table]:
    """Returns a table of steps beside other loops, and one of the cells, a row for each GAN and batch size."""
    return [_steps(result), _cells(result)]


def _steps(result: dict[str, Any]) -> Table:
    table = table_of(
        "a step beside other loops", "", "images/s", "over tutorial", "quartiles", "cost over bare, %", "quartiles"
    )
    for name, found in result["steps"].items():
        speedup, cost = found["speedup_over_tutorial"], found["cost_over_bare"]
        numbers = f"{found['images_per_second']:.0f}", median(speedup, ".2f"), quartiles(speedup, ".2f")
        table.add_row(name, *numbers, median(cost, "+.1f", 100), quartiles(cost, "+.1f", 100))
    return table


def _cells(result: dict[str, Any]) -> Table:
    modes = list(dict.fromkeys(cell["mode"] for cell in result["cells"]))
    title = "images/s (% of the bf16 matrix product's operations, MiB)"
    table = table_of(title, "", *modes)
    rows: dict[str, dict[str, str]] = {}
    for cell in result["cells"]:
        memory = "" if cell["peak_memory"] is None else f", {cell['peak_memory'] / MEBIBYTE:.0f}"
        share = f"{100 * cell['share_of_matrix_product']:.1f} %"
        text = f"{cell['images_per_second']:.0f} ({share}{memory})"
        rows.setdefault(f"{cell['gan']} {cell['batch_size']}", {})[cell["mode"]] = text
    for name, found in rows.items():
        table.add_row(name, *(found.get(mode, "") for mode in modes))
    return table


def notes(result: dict[str, Any]) -> list[str]:
    """Returns sentences about the machine, the goals, data and evaluation, and what was not measured."""
    driver = f", driver {result['driver']}" if result.get("driver") else ""
    lines = [
        f"on {result['device_name']}{driver}, torch {result['torch']}",
        f"matrix product in bf16: {result['matrix_product'] / 1e12:.3g} TFLOP/s",
        *_goals(result),
    ]
    if "data" in result:
        lines.append(f"a DCGAN step in bf16 waits {100 * result['data']['share']:.2f} % of its time for data")
    if "evaluation" in result:
        found = result["evaluation"]
        lines.append(f"evaluation with {found['extractor']}: {found['images_per_second']:.0f} images/s")
    lines += [f"failed: {name}: {sentence}" for name, sentence in result["failed"].items()]
    return lines + ([f"not run, for want of time: {', '.join(result['not_run'])}"] if result["not_run"] else [])


def _goals(result: dict[str, Any]) -> list[str]:
    lines = []
    for name, found in result["steps"].items():
        speedup, cost = found["speedup_over_tutorial"]["median"], found["cost_over_bare"]["median"]
        verdicts = (
            f"{speedup:.2f} times the tutorial loop ({_met(speedup >= _LEAST_SPEEDUP)} of {_LEAST_SPEEDUP:g})",
            f"{100 * cost:+.1f} % over bare ({_met(cost <= _LARGEST_COST)} of {100 * _LARGEST_COST:g} %)",
        )
        equal = "" if found["first_step"]["equal"] else "; the losses of the first step DIFFER"
        lines.append(f"{name}: {', '.join(verdicts)}{equal}")
    return lines


def _met(reached: bool) -> str:
    return "reaches the goal" if reached else "misses the goal"
