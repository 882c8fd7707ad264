"""`lit-gans bench step`: cost of DCGAN's training step, compared with the tutorials' loop and one without Lightning."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
from rich.table import Table

from benchmarks.loops import BareLoop, Loop, TutorialLoop
from benchmarks.measure import (
    MEBIBYTE,
    count_flops,
    environment,
    matrix_product_rate,
    peak_process_memory,
    spread,
)
from benchmarks.race import Race, beside_others, run
from benchmarks.report import median, quartiles, report, table_of
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import refuse_below
from lit_gans.models.dcgan import DCGAN

_STEPS = {"full": 20, "smoke": 4}
_SMOKE = {"image_size": 16, "batch_size": 8, "generator_width": 8, "discriminator_width": 8}
_MATRIX_SIZE = {"cpu": 2048, "cuda": 8192}  # 2048 would not fill a GPU
_SMOKE_MATRIX_SIZE = 256
_FLOP_BATCH = 2  # the count is proportional to the batch
# relative, between the losses of the first step; torch's default on CUDA is TF32 in convolutions
TOLERANCE = {("fp32", "cpu"): 1e-4, ("fp32", "cuda"): 2e-3, ("bf16", "cpu"): 2e-2, ("bf16", "cuda"): 2e-2}


def step(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    steps: int | None = None,
    warmup: int = 3,
    precision: Literal["fp32", "bf16"] = "fp32",
    compile: bool = False,
    device: Literal["cpu", "cuda"] | None = None,
    image_size: int = 64,
    channels: int = 3,
    generator_width: int = 64,
    discriminator_width: int = 64,
    batch_size: int = 64,
    log_every_n_steps: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Times three loops of DCGAN's training step in turns, on the same images, latents and initial weights.

    `tutorial` is the usual tutorials' loop in torch's defaults, float32 and uncompiled; `bare` does the work of our own
    step without Lightning; `lit_gans` is the module in a `Trainer` with a logger and callbacks. Ratios are taken within
    an iteration. Returns and prints seconds, bytes and operations per second.

    Args:
        preset: `smoke` limits the sizes and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        steps: number of timed iterations; null uses the preset's number.
        warmup: number of warm-up iterations.
        precision, compile: precision and compilation of `bare` and `lit_gans`.
        device: device to compute on; null uses CUDA if available, otherwise the CPU.
        image_size, channels, generator_width, discriminator_width: as in `DCGAN`.
        batch_size: number of images per step.
        log_every_n_steps: number of iterations between two rows of the log.
        seed: seed of weights, images and latents.
    """
    sizes = {"image_size": image_size, "generator_width": generator_width, "discriminator_width": discriminator_width}
    sizes |= {"channels": channels, "batch_size": batch_size}
    if preset == "smoke":
        sizes = {name: min(value, _SMOKE.get(name, value)) for name, value in sizes.items()}
    steps = _STEPS[preset] if steps is None else steps
    refuse_below(1, steps=steps, warmup=warmup, log_every_n_steps=log_every_n_steps, batch_size=batch_size)
    settings: dict[str, Any] = {"preset": preset, "steps": steps, "warmup": warmup, "seed": seed}
    settings |= {"precision": precision, "compile": compile, "log_every_n_steps": log_every_n_steps}
    result = _measure(sizes, settings, chosen_device(device))
    return report(result, [_table(result)], _notes(result), output)


def _measure(sizes: dict[str, int], settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32
    size = _SMOKE_MATRIX_SIZE if settings["preset"] == "smoke" else _MATRIX_SIZE[device.type]
    flops = _flops_per_step(sizes)
    rates = [matrix_product_rate(device, dtype, size)]
    race, weight_difference = run(
        partial(DCGAN, **{name: value for name, value in sizes.items() if name != "batch_size"}),
        sizes["batch_size"],
        settings["warmup"] + settings["steps"] + 1,  # the last step of `lit_gans` is not timed
        **{name: settings[name] for name in ("precision", "compile", "log_every_n_steps", "seed")},
        device=device,
    )
    rates.append(matrix_product_rate(device, dtype, size))
    seconds = {name: times[settings["warmup"] :][: settings["steps"]] for name, times in race.seconds.items()}
    return {
        "benchmark": "step",
        **settings,
        **sizes,
        **environment(device),
        "matrix_product": {"size": size, "dtype": str(dtype), "before": rates[0], "after": rates[1]},
        "loops": {name: _loop(name, race, seconds, flops[name], max(rates), sizes["batch_size"]) for name in seconds},
        "peak_process_memory": peak_process_memory(),
        "first_step": first_step(race, race.loops, TOLERANCE[settings["precision"], device.type]),
        "largest_weight_difference": weight_difference,
    }


def _loop(
    name: str, race: Race, seconds: dict[str, list[float]], flops: float, rate: float, batch_size: int
) -> dict[str, Any]:
    """Summarizes one loop; ratios are of steps in the same iteration."""
    times, typical = seconds[name], spread(seconds[name])["median"]
    return {
        "seconds": spread(times),
        "images_per_second": batch_size / typical,
        **beside_others(seconds, name),
        "flops_per_step": flops,
        "flops_per_second": flops / typical,
        "share_of_matrix_product": flops / typical / rate,
        "peak_step_memory": race.memory.get(name),
    }


def _flops_per_step(sizes: dict[str, int]) -> dict[str, float]:
    """Counts small batches on the CPU, which changes neither the memory peak nor the weights of the race."""
    arguments = {name: value for name, value in sizes.items() if name != "batch_size"}
    images = torch.zeros(_FLOP_BATCH, sizes["channels"], sizes["image_size"], sizes["image_size"])

    def flops(loop: Loop) -> float:
        return count_flops(lambda: loop.step(images)) * sizes["batch_size"] / _FLOP_BATCH

    ours = flops(BareLoop(DCGAN(**arguments), bf16=False, ema_decay=0.0))
    return {"tutorial": flops(TutorialLoop(DCGAN(**arguments))), "bare": ours, "lit_gans": ours}


def first_step(race: Race, loops: Iterable[str], tolerance: float) -> dict[str, Any]:
    """Returns whether loops compute the same losses as `lit_gans`.

    Args:
        race: a race that has been run.
        loops: names of the loops to compare.
        tolerance: largest relative difference.
    """
    ours = race.first_losses["lit_gans"]
    difference = max(abs(race.first_losses[loop][name] / ours[name] - 1) for loop in loops for name in ours)
    return {
        "losses": race.first_losses,
        "largest_relative_difference": difference,
        "tolerance": tolerance,
        "equal": difference <= tolerance,
    }


# ---- the report


def _table(result: dict[str, Any]) -> Table:
    loops = result["loops"].values()
    size, compiled = result["image_size"], ", compiled" if result["compile"] else ""
    title = f"DCGAN step, {size}x{size}, batch {result['batch_size']}, {result['precision']}{compiled}"
    table = table_of(title, "", *result["loops"])
    for label, key, scale, style in (
        ("ms a step", "seconds", 1000, ".4g"),
        ("speedup over tutorial", "speedup_over_tutorial", 1, ".2f"),
        ("cost over bare, %", "cost_over_bare", 100, "+.1f"),
    ):
        table.add_row(label, *(median(loop[key], style, scale) for loop in loops))
        table.add_row("  quartiles", *(quartiles(loop[key], style, scale) for loop in loops), style="dim")
    numbers: tuple[tuple[str, str, float, str], ...] = (
        ("images/s", "images_per_second", 1, ".1f"),
        ("GFLOP a step", "flops_per_step", 1e-9, ".3g"),
        ("GFLOP/s", "flops_per_second", 1e-9, ".3g"),
        ("% of matrix product's", "share_of_matrix_product", 100, ".0f"),
        ("peak memory, MiB", "peak_step_memory", 1 / MEBIBYTE, ".0f"),
    )
    for label, key, factor, style in numbers:
        if result["loops"]["bare"][key] is not None:
            table.add_row(label, *(f"{factor * loop[key]:{style}}" for loop in loops))
    return table


def _notes(result: dict[str, Any]) -> list[str]:
    product, first, memory = result["matrix_product"], result["first_step"], result["peak_process_memory"]
    rates = f"{product['before'] / 1e9:.3g} GFLOP/s before, {product['after'] / 1e9:.3g} after"
    verdict = "equal" if first["equal"] else "NOT equal, the ratios compare different work"
    lines = [
        f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}",
        f"matrix product of size {product['size']} in {product['dtype'].removeprefix('torch.')}: {rates}",
        f"losses of the first step: {verdict} (relative difference {first['largest_relative_difference']:.1e})",
        f"weights of bare and lit_gans after the last step differ by {result['largest_weight_difference']:.1e}",
    ]
    return lines + ([f"peak memory of the process: {memory / MEBIBYTE:.0f} MiB"] if memory else [])
