"""`lit-gans bench step`: what DCGAN's training step costs, beside the tutorials' loop and a loop without Lightning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from lit_gans.benchmark.loops import BareLoop, Loop, TutorialLoop
from lit_gans.benchmark.measure import (
    MEBIBYTE,
    count_flops,
    environment,
    matrix_product_rate,
    peak_process_memory,
    spread,
)
from lit_gans.benchmark.race import Race, run
from lit_gans.common.errors import RefusedInput
from lit_gans.models.dcgan import DCGAN

_STEPS = {"full": 20, "smoke": 4}
_SMOKE = {"image_size": 16, "batch_size": 8, "generator_width": 8, "discriminator_width": 8}
_MATRIX_SIZE = {"cpu": 2048, "cuda": 8192}  # 2048 would not fill a GPU
_SMOKE_MATRIX_SIZE = 256
_FLOP_BATCH = 2  # the count is proportional to the batch
# relative, between the losses of the first step; torch's default on CUDA is TF32 in convolutions
_TOLERANCE = {("fp32", "cpu"): 1e-4, ("fp32", "cuda"): 2e-3, ("bf16", "cpu"): 2e-2, ("bf16", "cuda"): 2e-2}


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
    """Times three loops of DCGAN's training step in turns, on the same images, latents and first weights.

    `tutorial` is the usual tutorials' loop in torch's defaults, float32 and uncompiled; `bare` does the work of our own
    step without Lightning; `lit_gans` is the module in a `Trainer` with a logger and callbacks. Ratios are taken within
    an iteration, so that a machine that slows down slows all three. Prints a table and a line of JSON.

    Args:
        preset: `smoke` caps the sizes and ends in seconds: its times mean nothing.
        output: JSON file to write as well.
        steps, warmup: timed iterations (null is the preset's number) and those before them.
        precision, compile: of `bare` and `lit_gans`.
        device: null is CUDA where there is one, else the CPU.
        image_size, channels, generator_width, discriminator_width: as in `DCGAN`.
        batch_size: images of a step.
        log_every_n_steps: iterations between two rows of the log.
        seed: of weights, images and latents.

    Returns:
        What the JSON holds; seconds, bytes and operations a second.
    """
    sizes = {"image_size": image_size, "generator_width": generator_width, "discriminator_width": discriminator_width}
    sizes |= {"channels": channels, "batch_size": batch_size}
    if preset == "smoke":
        sizes = {name: min(value, _SMOKE.get(name, value)) for name, value in sizes.items()}
    settings = {"preset": preset, "steps": _STEPS[preset] if steps is None else steps, "warmup": warmup, "seed": seed}
    settings |= {"precision": precision, "compile": compile, "log_every_n_steps": log_every_n_steps}
    _refuse(settings | sizes)
    result = _measure(sizes, settings, _device(device))
    _print_table(result)
    print(json.dumps(result))
    if output is not None:
        Path(output).write_text(json.dumps(result, indent=2) + "\n")
    return result


def _refuse(values: dict[str, Any]) -> None:
    for name in ("steps", "warmup", "log_every_n_steps", "batch_size"):  # `DCGAN` refuses the others
        if values[name] < 1:
            raise RefusedInput(f"{name}={values[name]} must be at least 1.")


def _device(name: str | None) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise RefusedInput("device=cuda: torch finds no CUDA device here; use device=cpu.")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _measure(sizes: dict[str, int], settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32
    size = _SMOKE_MATRIX_SIZE if settings["preset"] == "smoke" else _MATRIX_SIZE[device.type]
    flops = _flops_per_step(sizes)
    rates = [matrix_product_rate(device, dtype, size)]
    race = run(
        {name: value for name, value in sizes.items() if name != "batch_size"},
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
        "first_step": _first_step(race, _TOLERANCE[settings["precision"], device.type]),
        "largest_weight_difference": race.largest_weight_difference(),
    }


def _loop(
    name: str, race: Race, seconds: dict[str, list[float]], flops: float, rate: float, batch_size: int
) -> dict[str, Any]:
    """Summarises one loop; ratios are of steps in the same iteration."""
    times, of_tutorial, of_bare = seconds[name], seconds["tutorial"], seconds["bare"]
    median = spread(times)["median"]
    return {
        "seconds": spread(times),
        "images_per_second": batch_size / median,
        "speedup_over_tutorial": spread([theirs / ours for theirs, ours in zip(of_tutorial, times, strict=True)]),
        "cost_over_bare": spread([ours / theirs - 1 for theirs, ours in zip(of_bare, times, strict=True)]),
        "flops_per_step": flops,
        "flops_per_second": flops / median,
        "share_of_matrix_product": flops / median / rate,
        "peak_step_memory": race.memory.get(name),
    }


def _flops_per_step(sizes: dict[str, int]) -> dict[str, float]:
    """Counts small batches on the CPU, of which neither the peak of memory nor the weights of the race know."""
    arguments = {name: value for name, value in sizes.items() if name != "batch_size"}
    images = torch.zeros(_FLOP_BATCH, sizes["channels"], sizes["image_size"], sizes["image_size"])

    def flops(loop: Loop) -> float:
        return count_flops(lambda: loop.step(images)) * sizes["batch_size"] / _FLOP_BATCH

    ours = flops(BareLoop(DCGAN(**arguments), bf16=False, ema_decay=0.0))
    return {"tutorial": flops(TutorialLoop(DCGAN(**arguments))), "bare": ours, "lit_gans": ours}


def _first_step(race: Race, tolerance: float) -> dict[str, Any]:
    """Tells whether the loops compute the same thing."""
    ours = race.first_losses["lit_gans"]
    difference = max(abs(losses[name] / ours[name] - 1) for losses in race.first_losses.values() for name in ours)
    return {
        "losses": race.first_losses,
        "largest_relative_difference": difference,
        "tolerance": tolerance,
        "equal": difference <= tolerance,
    }


# ---- the table


def _print_table(result: dict[str, Any]) -> None:
    loops = result["loops"].values()
    size, compiled = result["image_size"], ", compiled" if result["compile"] else ""
    table = Table(title=f"DCGAN step, {size}x{size}, batch {result['batch_size']}, {result['precision']}{compiled}")
    table.add_column(no_wrap=True)
    for name in result["loops"]:
        table.add_column(name, justify="right", no_wrap=True)
    for label, key, scale, style in (
        ("ms a step", "seconds", 1000, ".4g"),
        ("speedup over tutorial", "speedup_over_tutorial", 1, ".2f"),
        ("cost over bare, %", "cost_over_bare", 100, "+.1f"),
    ):
        table.add_row(label, *(f"{scale * loop[key]['median']:{style}}" for loop in loops))
        table.add_row("  quartiles", *(_quartiles(loop[key], scale, style) for loop in loops), style="dim")
    for label, key, scale, style in (
        ("images/s", "images_per_second", 1, ".1f"),
        ("GFLOP a step", "flops_per_step", 1e-9, ".3g"),
        ("GFLOP/s", "flops_per_second", 1e-9, ".3g"),
        ("% of matrix product's", "share_of_matrix_product", 100, ".0f"),
        ("peak memory, MiB", "peak_step_memory", 1 / MEBIBYTE, ".0f"),
    ):
        if result["loops"]["bare"][key] is not None:
            table.add_row(label, *(f"{scale * loop[key]:{style}}" for loop in loops))
    Console().print(table)
    print("\n".join(_notes(result)))


def _quartiles(values: dict[str, float], scale: float, style: str) -> str:
    return " .. ".join(f"{scale * values[name]:{style}}" for name in ("lower_quartile", "upper_quartile"))


def _notes(result: dict[str, Any]) -> list[str]:
    product, first, memory = result["matrix_product"], result["first_step"], result["peak_process_memory"]
    rates = f"{product['before'] / 1e9:.3g} GFLOP/s before, {product['after'] / 1e9:.3g} after"
    verdict = "the same" if first["equal"] else "NOT the same, the ratios compare different work"
    lines = [
        f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}",
        f"matrix product of size {product['size']} in {product['dtype'].removeprefix('torch.')}: {rates}",
        f"losses of the first step: {verdict} (relative difference {first['largest_relative_difference']:.1e})",
        f"weights of bare and lit_gans after the last step differ by {result['largest_weight_difference']:.1e}",
    ]
    return lines + ([f"peak memory of the whole process: {memory / MEBIBYTE:.0f} MiB"] if memory else [])
