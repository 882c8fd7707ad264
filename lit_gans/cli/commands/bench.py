"""`lit-gans bench [gans=[dcgan] batch_sizes=[64,128]]`: measures speed and memory of GANs on this machine.

Examples:
    lit-gans bench gans=[dcgan,sngan] batch_sizes=[64,128,256]
    lit-gans bench strategies=[ddp,fsdp] processes=2 modes=[bf16]
    lit-gans bench output=gpu.json
"""

from __future__ import annotations

import functools
import json
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.cli.tables import markdown
from lit_gans.cli.timing import ENDLESS, busy_machine, timed, unless_out_of_memory
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_below
from lit_gans.common.process_state import process_state_restored
from lit_gans.common.quiet import quiet
from lit_gans.config.registry import gans as registered
from lit_gans.config.run_folder import output_file
from lit_gans.config.signatures import schema
from lit_gans.strategies import NAMES

# Lightning's precision, and arguments of the module
MODES: dict[str, tuple[Any, dict[str, bool]]] = {
    "fp32": ("32-true", {"channels_last": False}),
    "tf32": ("32-true", {"channels_last": False, "tf32": True}),
    "bf16": ("bf16-mixed", {"channels_last": False}),
    "fp16": ("16-mixed", {"channels_last": False}),
    "channels_last": ("bf16-mixed", {"channels_last": True}),
    "compile": ("bf16-mixed", {"channels_last": True, "compile": True}),
}
_ON_CPU = ("fp32", "bf16")
_STRATEGIES = ("auto", *(name.removeprefix("network_") for name in NAMES))
_SMALL = ("sngan", "wgan_gp", "r3gan")  # GANs with 32-pixel images in their papers; all other GANs use 64 pixels
_MEBIBYTE = 2**20
_FIRST_ESTIMATE = {False: 4.0, True: 60.0}  # expected duration of a cell without and with compilation, in seconds


_COLUMNS = ("images/s", "ms", "operations", "host ms", "device ms", "peak MiB", "limit")


@dataclass(frozen=True)
class Cell:
    """One benchmark: the combination of a GAN, a mode, a batch size per process and a strategy."""

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
    """Measures the training speed and the peak memory of GANs in short training runs.

    Every combination of a GAN, a mode, a batch size and a strategy is trained for a short time. Prints the number of
    real images per second over all processes and discriminator steps, the median duration of an iteration in
    milliseconds, the number of operations of torch in an iteration without views, and the peak memory. It is the
    memory that torch allocates on a GPU, or that the process uses on a CPU. Operations are counted on a single process
    without a strategy, and not in compiled networks.

    On a GPU, also prints the time in which the host launches an iteration, and the time in which the GPU computes an
    iteration whose work is launched in advance. The iteration is host-bound if the host needs longer, and otherwise
    device-bound: then larger batches do not increase the number of images per second.

    The modes `fp32` (without TF32), `tf32`, `bf16` and `fp16` are those of `lit-gans train precision=MODE`, but use the
    default memory format. The mode `channels_last` is bf16 with the channels-last memory format, and `compile`
    additionally compiles the networks. The images are random and already on the device. Every iteration updates an
    averaged generator, and every tenth iteration writes a row of `metrics.csv`.

    First, the first GAN is measured in the first mode with the smallest batch. Then come the combinations that differ
    from this one in a single value, so that every value is measured early. Combinations that do not fit into memory say
    so in the table. Combinations that fail or do not start within the time limit are listed.

    Args:
        gans: names of GANs; null measures all GANs of this package, beginning with DCGAN.
        modes: names of modes; null measures all modes on a GPU, and `fp32` and `bf16` on a CPU.
        batch_sizes: numbers of images per discriminator step and process.
        strategies: `auto`, `ddp`, `fsdp`, `deepspeed`, `deepspeed_stage_1` and so on.
        processes: number of processes. Every process uses a separate GPU; on a CPU, the processes share the cores.
        image_size: height and width of the images; null uses the size in the paper, 32 or 64.
        width: width of the networks in channels; null uses the width in the paper.
        seconds: duration of a timing in seconds, after a warm-up of three iterations.
        minutes: time limit in minutes. A combination is measured only if it is expected to end within the limit.
        device: device to train on; null uses CUDA if available, otherwise the CPU.
        output: JSON file that is updated after every timing. At the end, the table is also written as Markdown, to the
            same path with the suffix .md. null writes no file.
    """
    if output is not None:
        if Path(output).suffix == ".md":
            raise RefusedInput(
                f"output={output}: expected a JSON file; the table is written beside it, with the suffix .md."
            )
        for path in (output, Path(output).with_suffix(".md")):
            output_file(path)
    where = chosen_device(device)
    refuse_below(1, processes=processes)
    of_package = [name for name, cls in registered().items() if cls.__module__.startswith("lit_gans.")]
    gans = gans if gans is not None else sorted(of_package, key=lambda name: name != "dcgan")
    modes = modes if modes is not None else list(MODES if where.type == "cuda" else _ON_CPU)
    for key, names, known in (
        ("gans", gans, registered()),
        ("modes", modes, MODES),
        ("strategies", strategies, _STRATEGIES),
    ):
        for name in names:
            if name not in known:
                raise RefusedInput(f"{key}: there is no '{name}'; {nearest(name, known)}")
    modes = sorted(modes, key=lambda mode: mode == "compile")
    choices = product(gans, sorted(batch_sizes), strategies, modes)
    cells = [Cell(gan, mode, batch_size, strategy, processes) for gan, batch_size, strategy, mode in choices]
    sizes = {"image_size": image_size, "width": width, "seconds": seconds}
    result: dict[str, Any] = {**sizes, "minutes": minutes, **machine(where), "cells": [], "busy": {}, "failed": {}}
    result |= {"out_of_memory": [], "not_run": []}
    _run(by_priority(cells), sizes, where.type, time.monotonic() + 60 * minutes, result, output)
    text = "\n".join([*_table(result, cells), "", *(f"- {note}" for note in _notes(result))])
    print(text)
    if output is not None:
        Path(output).with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    if result["failed"] and not (result["cells"] or result["out_of_memory"]):
        name, sentence = next(iter(result["failed"].items()))
        raise RefusedInput(f"no combination was measured; the first, {name}, failed: {sentence}")
    return result


def by_priority(cells: list[Cell]) -> list[Cell]:
    """Returns the first cell, then the cells that differ from it in one value, then in two values, and so on.

    A time limit then leaves out combinations, but no value. Cells that differ in the batch size come before cells that
    differ in the mode, the GAN or the strategy. Of the cells that differ in several values, compiled ones come last.
    """

    def priority(cell: Cell) -> tuple[int, bool, list[bool]]:
        values, first = ((each.batch_size, each.mode, each.gan, each.strategy) for each in (cell, cells[0]))
        is_equal = [one == other for one, other in zip(values, first, strict=True)]
        num_different = is_equal.count(False)
        return num_different, num_different > 1 and cell.mode == "compile", is_equal

    return sorted(cells, key=priority)  # the sort is stable, so that the remaining order does not change


def machine(device: torch.device) -> dict[str, Any]:
    """Returns the properties of the machine that affect timings: device, number of threads and versions."""
    properties = {"device": device.type, "threads": torch.get_num_threads(), "python": platform.python_version()}
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        properties |= {"device_name": card.name, "memory": card.total_memory, "cuda": torch.version.cuda}
        properties |= {"capability": f"{card.major}.{card.minor}", "cudnn": torch.backends.cudnn.version()}
    else:
        information = Path("/proc/cpuinfo")
        lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        properties["device_name"] = names[0] if names else platform.processor() or platform.machine()
    return properties | {"torch": torch.__version__}


def _run(
    cells: list[Cell], sizes: dict[str, Any], device: str, deadline: float, result: dict[str, Any], output: str | None
) -> None:
    """Runs the benchmarks in order until the deadline, and writes the results after every benchmark."""
    estimates = dict(_FIRST_ESTIMATE)
    for cell in cells:
        start, compiles = time.monotonic(), cell.mode == "compile"
        if start + estimates[compiles] > deadline:
            result["not_run"].append(str(cell))
        else:
            try:
                measured = unless_out_of_memory(functools.partial(_measure, cell, sizes, device))
                if measured is None:
                    result["out_of_memory"].append(str(cell))
                else:
                    result["busy"] |= {str(cell): sentence for sentence in measured.pop("busy")}
                    result["cells"].append(asdict(cell) | measured)
                    # the factor is a safety margin, because the next cell may have a larger network
                    estimates[compiles] = 1.5 * (time.monotonic() - start)
            except (RefusedInput, RuntimeError, torch.multiprocessing.ProcessRaisedException) as error:
                result["failed"][str(cell)] = one_line(str(error).strip().splitlines()[-1])[:300]
        if output is not None:
            Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


# ---- running one benchmark


def _measure(cell: Cell, sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """Runs a benchmark and returns the result. Starts new processes if there is a strategy or more than one process."""
    with tempfile.TemporaryDirectory() as folder:
        if cell.strategy == "auto" and cell.processes == 1:
            return _train(cell, sizes, device, folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        torch.multiprocessing.spawn(_rank, (cell, sizes, device, folder, port), cell.processes)
        return dict(json.loads(Path(folder, "result.json").read_bytes()))


def _rank(rank: int, cell: Cell, sizes: dict[str, Any], device: str, folder: str, port: int) -> None:
    """Runs a benchmark on one of several processes, with torchrun's environment variables. Rank 0 writes the result."""
    num, text = str(cell.processes), str(rank)
    os.environ |= {"RANK": text, "LOCAL_RANK": text, "GROUP_RANK": "0", "WORLD_SIZE": num, "LOCAL_WORLD_SIZE": num}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "bench"}
    torch.set_num_threads(max(1, torch.get_num_threads() // cell.processes))
    quiet()
    measured = _train(cell, sizes, device, folder)
    if rank == 0:
        Path(folder, "result.json").write_text(json.dumps(measured), encoding="utf-8")


def _train(cell: Cell, sizes: dict[str, Any], device: str, folder: str) -> dict[str, Any]:
    precision, arguments = MODES[cell.mode]
    if precision == "16-mixed" and device != "cuda":
        raise RefusedInput(f"mode {cell.mode} needs a CUDA device.")
    image_size, width = sizes["image_size"] or (32 if cell.gan in _SMALL else 64), sizes["width"]
    settings: dict[str, Any] = {"image_size": image_size, "channels": 3, **arguments}
    cls = registered()[cell.gan]
    own = schema(cls)
    if width is not None:
        settings |= {name: width for name in ("generator_width", "discriminator_width") if name in own}
    if "patch_depth" in own and image_size < 64:
        settings["patch_depth"] = 1  # these images are too small for a PatchGAN of the default depth of three layers
    with process_state_restored():
        module = cls(**settings)
        trainer = Trainer(
            accelerator=device,
            devices=cell.processes,
            strategy="auto" if cell.strategy == "auto" else f"network_{cell.strategy}",
            precision=precision,
            benchmark=True,  # as in conf/trainer/default.yaml
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
        counts = cell.strategy == "auto" and cell.processes == 1 and cell.mode != "compile"
        timing = timed(module, images, trainer, sizes["seconds"], counts=counts, splits=True)
    step = statistics.median(timing.times)
    measured = {"images_per_second": timing.images / step, "seconds": step, "operations": timing.operations}
    measured |= {"host_seconds": timing.host, "device_seconds": timing.device, "peak_memory": timing.peak_memory}
    return measured | {"busy": busy_machine([timing])}


class _Images:
    """Data loader that alternates between two batches of random images on the device."""

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


# ---- table of results


def _table(result: dict[str, Any], cells: list[Cell]) -> list[str]:
    """Returns a table with one row per cell that was measured or does not fit into memory, in the order of `cells`.

    Columns without a value are left out, such as the times of the host and the device on a CPU.
    """
    measured = {Cell(*(found[field.name] for field in fields(Cell))): found for found in result["cells"]}
    rows = []
    for cell in cells:
        several = f" x {cell.processes}" if cell.processes > 1 else ""
        row = {"GAN": cell.gan, "batch": str(cell.batch_size), "strategy": f"{cell.strategy}{several}"}
        row |= {"mode": cell.mode}
        if cell in measured:
            rows.append(row | _values(measured[cell]))
        elif str(cell) in result["out_of_memory"]:
            rows.append(row | {"images/s": "out of memory"})
    columns = [name for name in ("GAN", "batch", "strategy", "mode", *_COLUMNS) if any(row.get(name) for row in rows)]
    return markdown([columns, *([row.get(name, "") for name in columns] for row in rows)]) if rows else []


def _values(measured: dict[str, Any]) -> dict[str, str]:
    """Returns the columns of a measured cell. A value that was not measured is an empty text."""
    host, device = measured["host_seconds"], measured["device_seconds"]
    operations, memory = measured["operations"], measured["peak_memory"]
    limit = "" if host is None or device is None else "host-bound" if host > device else "device-bound"
    texts = (
        f"{measured['images_per_second']:.4g}",
        f"{1000 * measured['seconds']:.4g}",
        "" if operations is None else f"{operations:,}",
        "" if host is None else f"{1000 * host:.4g}",
        "" if device is None else f"{1000 * device:.4g}",
        "" if memory is None else f"{memory / _MEBIBYTE:.0f}",
        limit,
    )
    return dict(zip(_COLUMNS, texts, strict=True))


def _notes(result: dict[str, Any]) -> list[str]:
    owner = "torch" if result["device"] == "cuda" else "the process"
    lines = [f"ms: time per iteration; peak MiB: memory of {owner}"]
    lines += [f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"]
    lines += [f"{name}: {sentence}" for name, sentence in result["busy"].items()]
    lines += [f"failed: {name}: {sentence}" for name, sentence in result["failed"].items()]
    return lines + ([f"not run, no time left: {', '.join(result['not_run'])}"] if result["not_run"] else [])
