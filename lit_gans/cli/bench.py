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
from lightning.pytorch import LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_below, refuse_not_positive
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.config.run_folder import refuse_file
from lit_gans.strategies import NAMES
from lit_gans.training.callback import GenerativeCallback

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
_WARMUP = 3  # iterations
_BLOCK = {"cuda": 5, "cpu": 1}  # iterations between two looks at the clock, which wait for a GPU
_FEWEST, _MOST = 3, 40  # blocks
_ENDLESS = 10**6
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
    gans: list[str] = ["dcgan", "sngan", "wgan_gp", "d2gan", "d3gan", "gan", "pix2pix", "r3gan"],  # noqa: B006 - read only
    modes: list[str] | None = None,
    batch_sizes: list[int] = [64],  # noqa: B006
    strategies: list[str] = ["auto"],  # noqa: B006
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
        gans: names of GANs, the most telling first.
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
        refuse_file(output, "output")
    where = chosen_device(device)
    refuse_not_positive(minutes=minutes, seconds=seconds)
    refuse_below(1, processes=processes, image_size=image_size, width=width)
    modes = modes if modes is not None else list(MODES if where.type == "cuda" else _ON_CPU)
    for key, given, known in (
        ("gans", gans, registered()),
        ("modes", modes, MODES),
        ("strategies", strategies, _STRATEGIES),
    ):
        for name in given:
            if name not in known:
                raise RefusedInput(f"{key}: there is no '{name}'; {nearest(name, known)}")
    if not batch_sizes or min(batch_sizes) < 2:
        raise RefusedInput(f"batch_sizes={batch_sizes} must be at least 2 each.")
    cells = [Cell(*values, processes) for values in product(gans, modes, batch_sizes, strategies)]
    cells.sort(key=lambda cell: (cell.mode == "compile", cell.batch_size))  # stable
    sizes = {"image_size": image_size, "width": width, "seconds": seconds}
    result: dict[str, Any] = {**sizes, "minutes": minutes, **machine(where), "cells": [], "failed": {}, "not_run": []}
    _run(cells, sizes, where.type, time.monotonic() + 60 * minutes, result, output)
    rows, notes = _rows(result), _notes(result)
    table = Table(*rows[0], title="images/s, ms of an iteration, MiB")
    for row in rows[1:]:
        table.add_row(*row)
    Console(width=None if os.isatty(1) else 160).print(table)
    print(*notes, sep="\n")
    if output is not None:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{'---|' * len(rows[0])}")
        Path(output).with_suffix(".md").write_text("\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n")
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
        lines = information.read_text().splitlines() if information.is_file() else []
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
                result["cells"].append(asdict(cell) | _measured(cell, sizes, device))
            except (RefusedInput, RuntimeError, torch.multiprocessing.ProcessRaisedException) as error:
                result["failed"][str(cell)] = one_line(str(error).strip().splitlines()[-1])[:300]
            # with a reserve: the next one may be of a larger network
            estimates[compiles] = 1.5 * (time.monotonic() - begun)
        if output is not None:
            Path(output).parent.mkdir(parents=True, exist_ok=True)
            Path(output).write_text(json.dumps(result, indent=2) + "\n")


# ---- one cell


def _measured(cell: Cell, sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """Trains a cell in this process, or in several new ones."""
    with tempfile.TemporaryDirectory() as folder:
        if cell.strategy == "auto" and cell.processes == 1:
            return _train(cell, sizes, device, folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        torch.multiprocessing.spawn(_rank, (cell, sizes, device, folder, port), cell.processes)
        return dict(json.loads(Path(folder, "result.json").read_text()))


def _rank(rank: int, cell: Cell, sizes: dict[str, Any], device: str, folder: str, port: int) -> None:
    """Trains a cell as one of several processes, with torchrun's variables; rank 0 writes the result."""
    num, one = str(cell.processes), str(rank)
    os.environ |= {"RANK": one, "LOCAL_RANK": one, "GROUP_RANK": "0", "WORLD_SIZE": num, "LOCAL_WORLD_SIZE": num}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "bench"}
    torch.set_num_threads(max(1, torch.get_num_threads() // cell.processes))
    quiet()
    found = _train(cell, sizes, device, folder)
    if rank == 0:
        Path(folder, "result.json").write_text(json.dumps(found))


def _train(cell: Cell, sizes: dict[str, Any], device: str, folder: str) -> dict[str, Any]:
    precision, tf32, arguments = MODES[cell.mode]
    if precision == "16-mixed" and device != "cuda":
        raise RefusedInput(f"mode {cell.mode} needs a CUDA device.")
    image_size, width = sizes["image_size"] or (32 if cell.gan in _SMALL else 64), sizes["width"]
    given: dict[str, Any] = {"image_size": image_size, "channels": 3, **arguments}
    if width is not None:
        given |= {"generator_width": width, "discriminator_width": width}
    if cell.gan == "pix2pix" and image_size < 64:
        given["patch_depth"] = 1  # three layers leave no patch of so small an image
    _forget_peak(device)
    clock = Clock(sizes["seconds"], _BLOCK[device])
    with _tf32(tf32):
        module = registered()[cell.gan](**given)
        trainer = Trainer(
            accelerator=device,
            devices=cell.processes,
            strategy="auto" if cell.strategy == "auto" else f"network_{cell.strategy}",
            precision=precision,
            max_epochs=1,
            logger=CSVMetrics(folder),
            callbacks=[EMA(), Throughput(), clock],
            log_every_n_steps=10,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(module, _Images(module, cell.batch_size * module.batches_per_step, torch.device(device)))
    step = statistics.median(clock.times)
    images = cell.batch_size * module.batches_per_step * cell.processes
    return {"images_per_second": images / step, "seconds": step, "peak_memory": _peak(device)}


class Clock(GenerativeCallback):
    """Times blocks of iterations after a warm-up, and ends the training, on all ranks at once.

    Args:
        seconds: time after which the training ends.
        block: number of iterations between two looks at the clock.

    Attributes:
        times: seconds of an iteration, the mean of each block.
    """

    def __init__(self, seconds: float, block: int) -> None:
        self.seconds, self.block = seconds, block
        self.times: list[float] = []
        self._done, self._since = -_WARMUP, 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._done += 1
        if self._done < 0 or self._done % self.block:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._done:
            self.times.append((now - self._since) / self.block)
            enough = len(self.times) >= _FEWEST and sum(self.times) * self.block >= self.seconds
            trainer.should_stop = bool(trainer.strategy.broadcast(enough or len(self.times) == _MOST))
        self._since = time.perf_counter()


class _Images:
    """Yields two batches of random images on the device in turns."""

    def __init__(self, module: Any, num: int, device: torch.device) -> None:
        shape = (num, module.channels, module.image_size, module.image_size)
        generator = torch.Generator().manual_seed(0)
        self.batches = [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(2)]

    def __len__(self) -> int:
        return _ENDLESS

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for index in range(_ENDLESS):
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


def _forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)


def _peak(device: str) -> int | None:
    """Returns the peak memory in bytes since `_forget_peak`; None on a CPU without Linux's /proc."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)


# ---- the table


def _rows(result: dict[str, Any]) -> list[list[str]]:
    """Returns a heading, and a row for each GAN, batch size and strategy, with a column for each mode."""
    modes = list(dict.fromkeys(cell["mode"] for cell in result["cells"]))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in result["cells"]:
        strategy = cell["strategy"] + (f" x {cell['processes']}" if cell["processes"] > 1 else "")
        memory = "" if cell["peak_memory"] is None else f", {cell['peak_memory'] / _MEBIBYTE:.0f} MiB"
        text = f"{cell['images_per_second']:.4g}, {1000 * cell['seconds']:.4g} ms{memory}"
        rows.setdefault((cell["gan"], str(cell["batch_size"]), strategy), {})[cell["mode"]] = text
    found = [[*key, *(row.get(mode, "") for mode in modes)] for key, row in rows.items()]
    return [["GAN", "batch", "strategy", *modes], *found]


def _notes(result: dict[str, Any]) -> list[str]:
    lines = [f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"]
    lines += [f"failed: {name}: {sentence}" for name, sentence in result["failed"].items()]
    return lines + ([f"not run, for want of time: {', '.join(result['not_run'])}"] if result["not_run"] else [])
