"""`lit-gans bench [gans=[dcgan] batch_sizes=[64,128]]`: speed and memory of GANs on this machine.

Examples:
    lit-gans bench gans=[dcgan,sngan] batch_sizes=[64,128,256]
    lit-gans bench strategies=[ddp,fsdp] processes=2 modes=[bf16]
    lit-gans bench output=gpu.json
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.cli.tables import markdown
from lit_gans.cli.timing import ENDLESS, busy_machine, timed
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_below
from lit_gans.common.process_state import process_state_restored
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.config.run_folder import output_file
from lit_gans.strategies import NAMES

# Lightning's precision, TF32, and arguments of the module
MODES: dict[str, tuple[Any, bool, dict[str, bool]]] = {
    "fp32": ("32-true", False, {"channels_last": False}),
    "tf32": ("32-true", True, {"channels_last": False}),
    "bf16": ("bf16-mixed", True, {"channels_last": False}),
    "fp16": ("16-mixed", True, {"channels_last": False}),
    "channels_last": ("bf16-mixed", True, {"channels_last": True}),
    "compile": ("bf16-mixed", True, {"channels_last": True, "compile": True}),
}
_ON_CPU = ("fp32", "bf16")
_STRATEGIES = ("auto", *(name.removeprefix("network_") for name in NAMES))
_SMALL = ("sngan", "wgan_gp", "r3gan")  # whose papers have images of 32 pixels; the others get 64
_MEBIBYTE = 2**20
_FIRST_ESTIMATE = {False: 4.0, True: 60.0}  # seconds of a cell, by whether it compiles


@dataclass(frozen=True)
class Cell:
    """One GAN in one mode, at one batch size per process, under one strategy."""

    gan: str
    mode: str
    batch_size: int
    strategy: str = "auto"
    processes: int = 1

    def __str__(self) -> str:
        several = "" if self.strategy == "auto" and self.processes == 1 else f" {self.strategy} x {self.processes}"
        return f"{self.gan} {self.mode} {self.batch_size}{several}"


def bench(
    gans: list[str] | None = None,
    modes: list[str] | None = None,
    batch_sizes: tuple[int, ...] = (64,),
    strategies: tuple[str, ...] = ("auto",),
    processes: int = 1,
    image_size: int | None = None,
    width: int | None = None,
    seconds: float = 1.0,
    minutes: float = 8.0,
    device: Literal["cpu", "cuda"] | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """Trains each GAN in each mode, at each batch size, under each strategy, for a moment, within a time limit.

    Modes: `fp32` without TF32, `tf32`, `bf16` and `fp16`, in the default memory layout; `channels_last` is bf16 in that
    layout, `compile` is that with compiled networks. Images are random and on the device; an average of the generator
    and a row of `metrics.csv` every ten iterations belong to the step. The smallest batches come first and compiled
    networks last: cells for which no time is left are listed, as are those that fail. Prints real images per second
    of all processes and discriminator steps, milliseconds of an iteration (the median), and the peak memory: of
    torch's allocations on a GPU, of a process on a CPU.

    Args:
        gans: names of GANs; null takes all of this package.
        modes: names of modes; null takes all of them on a GPU, `fp32` and `bf16` on a CPU.
        batch_sizes: numbers of images for each discriminator step of a process.
        strategies: `auto`, `ddp`, `fsdp`, `deepspeed`, `deepspeed_stage_1` and so on.
        processes: number of processes, each with a device of its own; on a CPU they share the cores.
        image_size: height and width of the images; null takes those of the paper, 32 or 64.
        width: width of the networks in channels; null takes that of the paper.
        seconds: time of the measurement of a cell, after three iterations of warm-up.
        minutes: time limit; a cell starts if it is expected to end within it.
        device: device to train on; null uses CUDA if available, otherwise the CPU.
        output: optional JSON file to write, after every cell; at the end also the table as Markdown, under the same
            name with .md.
    """
    if output is not None:
        output_file(output)
    where = chosen_device(device)
    refuse_below(1, processes=processes)
    ours = [name for name, cls in registered().items() if cls.__module__.startswith("lit_gans.")]
    gans = gans if gans is not None else ours
    modes = modes if modes is not None else list(MODES if where.type == "cuda" else _ON_CPU)
    for key, given, known in (
        ("gans", gans, registered()),
        ("modes", modes, MODES),
        ("strategies", strategies, _STRATEGIES),
    ):
        for name in given:
            if name not in known:
                raise RefusedInput(f"{key}: there is no '{name}'; {nearest(name, known)}")
    cells = [Cell(*values, processes) for values in product(gans, modes, batch_sizes, strategies)]
    cells.sort(key=lambda cell: (cell.mode == "compile", cell.batch_size))  # stable
    sizes = {"image_size": image_size, "width": width, "seconds": seconds}
    result: dict[str, Any] = {**sizes, "minutes": minutes, **machine(where), "cells": [], "busy": {}, "failed": {}}
    result["not_run"] = []
    _run(cells, sizes, where.type, time.monotonic() + 60 * minutes, result, output)
    text = "\n".join([*_table(result), "", *(f"- {note}" for note in _notes(result))])
    print(text)
    if output is not None:
        Path(output).with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    return result


def machine(device: torch.device) -> dict[str, Any]:
    """Returns what timings depend on besides the code: device, threads and versions."""
    found = {"device": device.type, "threads": torch.get_num_threads(), "python": platform.python_version()}
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        found |= {"device_name": card.name, "memory": card.total_memory, "cuda": torch.version.cuda}
        found |= {"capability": f"{card.major}.{card.minor}", "cudnn": torch.backends.cudnn.version()}
    else:
        information = Path("/proc/cpuinfo")
        lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        found["device_name"] = names[0] if names else platform.processor() or platform.machine()
    return found | {"torch": torch.__version__}


def _run(
    cells: list[Cell], sizes: dict[str, Any], device: str, deadline: float, result: dict[str, Any], output: str | None
) -> None:
    """Measures cells in order, as far as the time allows, and stores after each what is known."""
    estimates = dict(_FIRST_ESTIMATE)
    for cell in cells:
        begun, compiles = time.monotonic(), cell.mode == "compile"
        if begun + estimates[compiles] > deadline:
            result["not_run"].append(str(cell))
        else:
            try:
                found = _measured(cell, sizes, device)
                result["busy"] |= {str(cell): sentence for sentence in found.pop("busy")}
                result["cells"].append(asdict(cell) | found)
            except (RefusedInput, RuntimeError, torch.multiprocessing.ProcessRaisedException) as error:
                result["failed"][str(cell)] = one_line(str(error).strip().splitlines()[-1])[:300]
            # with a reserve: the next one may be of a larger network
            estimates[compiles] = 1.5 * (time.monotonic() - begun)
        if output is not None:
            Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


# ---- one cell


def _measured(cell: Cell, sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """Trains a cell in this process, or in several new ones."""
    with tempfile.TemporaryDirectory() as folder:
        if cell.strategy == "auto" and cell.processes == 1:
            return _train(cell, sizes, device, folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        torch.multiprocessing.spawn(_rank, (cell, sizes, device, folder, port), cell.processes)
        return dict(json.loads(Path(folder, "result.json").read_bytes()))


def _rank(rank: int, cell: Cell, sizes: dict[str, Any], device: str, folder: str, port: int) -> None:
    """Trains a cell as one of several processes, with torchrun's variables; rank 0 writes the result."""
    num, one = str(cell.processes), str(rank)
    os.environ |= {"RANK": one, "LOCAL_RANK": one, "GROUP_RANK": "0", "WORLD_SIZE": num, "LOCAL_WORLD_SIZE": num}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "bench"}
    torch.set_num_threads(max(1, torch.get_num_threads() // cell.processes))
    quiet()
    found = _train(cell, sizes, device, folder)
    if rank == 0:
        Path(folder, "result.json").write_text(json.dumps(found), encoding="utf-8")


def _train(cell: Cell, sizes: dict[str, Any], device: str, folder: str) -> dict[str, Any]:
    precision, tf32, arguments = MODES[cell.mode]
    if precision == "16-mixed" and device != "cuda":
        raise RefusedInput(f"mode {cell.mode} needs a CUDA device.")
    image_size, width = sizes["image_size"] or (32 if cell.gan in _SMALL else 64), sizes["width"]
    given: dict[str, Any] = {"image_size": image_size, "channels": 3, **arguments}
    if width is not None:
        given |= {"generator_width": width, "discriminator_width": width}
    if cell.gan in ("pix2pix", "cyclegan", "autoencoder_kl") and image_size < 64:
        given["patch_depth"] = 1  # three layers leave no patch of so small an image
    with process_state_restored(), _tf32(tf32):
        module = registered()[cell.gan](**given)
        trainer = Trainer(
            accelerator=device,
            devices=cell.processes,
            strategy="auto" if cell.strategy == "auto" else f"network_{cell.strategy}",
            precision=precision,
            max_steps=ENDLESS,
            logger=CSVMetrics(folder),
            callbacks=[EMA(), Throughput()],
            log_every_n_steps=10,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        images = _Images(module, cell.batch_size * module.batches_per_step, torch.device(device))
        timing = timed(module, images, trainer, sizes["seconds"])
    step = statistics.median(timing.times)
    measured = {"images_per_second": timing.images / step, "seconds": step, "peak_memory": timing.peak_memory}
    return measured | {"busy": busy_machine([timing])}


class _Images:
    """Yields two batches of random images on the device in turns."""

    def __init__(self, module: Any, num: int, device: torch.device) -> None:
        shape = (num, module.channels, module.image_size, module.image_size)
        generator = torch.Generator().manual_seed(0)
        self.batches = [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(2)]

    def __len__(self) -> int:
        return ENDLESS

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for index in range(ENDLESS):
            images = self.batches[index % 2]
            yield {"image": images, "input": images}


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Allows or forbids TF32 in matrix products and convolutions in float32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


# ---- the table


def _table(result: dict[str, Any]) -> list[str]:
    """Returns a table with a row for each GAN, batch size and strategy, and a column for each mode."""
    modes = list(dict.fromkeys(cell["mode"] for cell in result["cells"]))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in result["cells"]:
        strategy = cell["strategy"] + (f" x {cell['processes']}" if cell["processes"] > 1 else "")
        memory = "" if cell["peak_memory"] is None else f", {cell['peak_memory'] / _MEBIBYTE:.0f} MiB"
        text = f"{cell['images_per_second']:.4g}, {1000 * cell['seconds']:.4g} ms{memory}"
        rows.setdefault((cell["gan"], str(cell["batch_size"]), strategy), {})[cell["mode"]] = text
    found = [[*key, *(row.get(mode, "") for mode in modes)] for key, row in rows.items()]
    return markdown([["GAN", "batch", "strategy", *modes], *found])


def _notes(result: dict[str, Any]) -> list[str]:
    lines = ["images/s, ms of an iteration, peak memory"]
    lines += [f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"]
    lines += [f"{name}: {sentence}" for name, sentence in result["busy"].items()]
    lines += [f"failed: {name}: {sentence}" for name, sentence in result["failed"].items()]
    return lines + ([f"not run, for want of time: {', '.join(result['not_run'])}"] if result["not_run"] else [])
