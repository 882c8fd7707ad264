"""`lit-gans bench strategies`: `NetworkDDP` compared with Lightning's DDP, and memory of all strategies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table

from benchmarks.measure import environment
from benchmarks.report import median, quartiles, report, table_of
from benchmarks.shapes import SHAPES
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.config.registry import gans as registered

_RANKS = 2
_PRESETS = {
    "full": {"rounds": 11, "steps": 8, "image_size": 32, "width": 32, "batch_size": 16},
    "smoke": {"rounds": 1, "steps": 2, "image_size": 16, "width": 4, "batch_size": 2},
}


def strategies(
    preset: Literal["full", "smoke"] = "full",
    gans: list[str] = ["dcgan", "wgan_gp", "d2gan"],  # noqa: B006 - read only
    shapes: list[str] = ["vocoder", "autoencoder"],  # noqa: B006 - read only
    rounds: int | None = None,
    steps: int | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """Times `NetworkDDP` and `ddp_find_unused_parameters_true` in turns, on two CPU processes over gloo.

    Both train the same module on the same images; a round is some steps of each. Bytes are counted at each all-reduce:
    those of gradients, and separately ours of running statistics (Lightning broadcasts its buffers below Python,
    uncounted, as is the bitmap of unused parameters). So are two modules in the shape of other people's trainers: a
    vocoder whose two kinds of discriminators have one optimizer, and an autoencoder whose discriminator starts one
    iteration late. Then the first GAN is trained under each strategy, with residual networks, Adam and two
    microbatches, and the bytes that a rank holds are measured: parameters and optimizer states after an iteration,
    gradients at the end of the backward pass after which they are largest.

    Args:
        preset: `smoke` finishes in seconds; its times are meaningless.
        gans: names of the GANs to train; without any, no memory is measured.
        shapes: names of the other modules to train, of `vocoder` and `autoencoder`.
        rounds: number of rounds; null uses the preset's number.
        steps: number of timed steps of each strategy per round; null uses the preset's number.
        output: optional JSON file to write.

    Returns:
        `gans`, for each: images per second and bytes per step of both, the ratio of their speeds with quartiles over
        the rounds, and the bytes of the gradients of the networks that a step trains. `shapes`, for each:
        iterations per second and their ratio, and the bytes of the first iteration and of the second one. `memory`, for
        each strategy: the bytes that a rank holds, the larger of the two.
    """
    settings = dict(_PRESETS[preset])
    settings |= {name: value for name, value in {"rounds": rounds, "steps": steps}.items() if value is not None}
    unknown = [name for name in gans if name not in registered()]
    if unknown:
        raise RefusedInput(f"gans={unknown}: there are {', '.join(sorted(registered()))}.")
    unknown = [name for name in shapes if name not in SHAPES]
    if unknown:
        raise RefusedInput(f"shapes={unknown}: there are {', '.join(sorted(SHAPES))}.")
    if not gans and not shapes:
        raise RefusedInput("gans=[] and shapes=[] leave nothing to train: name one.")
    refuse_below(1, rounds=settings["rounds"], steps=settings["steps"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        _start({"gans": gans, "shapes": shapes, **settings, "file": str(file)})
        found = json.loads(file.read_text())
    result = {"benchmark": "strategies", "preset": preset, "ranks": _RANKS, **settings}
    result |= {**environment(torch.device("cpu")), **found}
    return report(result, _tables(result), [], output)


def _start(settings: dict[str, Any]) -> None:
    """Runs the ranks of `strategies_rank` until all have ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(_RANKS), "LOCAL_WORLD_SIZE": str(_RANKS), "GROUP_RANK": "0", "MASTER_PORT": str(port)}
    common |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "bench", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.strategies_rank", json.dumps(settings)]
    ranks = [
        subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(_RANKS)
    ]
    try:
        if any(process.wait() for process in ranks):
            raise RuntimeError("a process of the benchmark failed: see above.")
    finally:
        for process in ranks:
            process.kill()


def _tables(result: dict[str, Any]) -> list[Table]:
    tables = [_speeds(result), _memory(result)] if result["gans"] else []
    return [*tables, _shapes(result)] if result["shapes"] else tables


def _shapes(result: dict[str, Any]) -> Table:
    columns = ("iterations/s, Lightning", "iterations/s, lit_gans", "ratio (quartiles)", "bytes, iteration 0", "1")
    table = table_of(f"{_RANKS} processes, batch {result['batch_size']} each", "", *columns)
    for name, found in result["shapes"].items():
        speed, ratio, counted = found["iterations_per_second"], found["ratio"], found["bytes_per_iteration"]
        table.add_row(
            name,
            *_compared(speed, ratio),
            *(f"{one:,} : {other:,}" for one, other in zip(counted["lightning"], counted["lit_gans"], strict=True)),
        )
    return table


def _compared(speed: dict[str, Any], ratio: Any) -> tuple[str, str, str]:
    """Returns the cells with Lightning's speed, ours, and their ratio."""
    return median(speed["lightning"]), median(speed["lit_gans"]), f"{median(ratio, '.2f')} ({quartiles(ratio, '.2f')})"


def _speeds(result: dict[str, Any]) -> Table:
    size = result["image_size"]
    title = f"{_RANKS} processes, {size}x{size}, batch {result['batch_size']} each"
    columns = ("images/s, Lightning", "images/s, lit_gans", "ratio (quartiles)", "bytes a step", "gradients")
    table = table_of(title, "", *columns)
    for name, found in result["gans"].items():
        speed, ratio, counted = found["images_per_second"], found["ratio"], found["bytes_per_step"]
        table.add_row(
            name,
            *_compared(speed, ratio),
            f"{counted['lightning']:,} : {counted['lit_gans']:,}",
            f"{found['gradient_bytes_per_step']:,}",
        )
    return table


def _memory(result: dict[str, Any]) -> Table:
    title = f"MB that a rank of {_RANKS} holds: {next(iter(result['gans']))}, resnet, Adam"
    kinds = ("parameters", "gradients", "optimizer")
    table = table_of(title, "", *kinds)
    for name, found in result["memory"].items():
        table.add_row(name, *(f"{found[kind] / 1e6:.2f}" for kind in kinds))
    return table
