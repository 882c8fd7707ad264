"""`lit-gans bench gpu`: what a first session on a GPU should know, within a few minutes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem
from pathlib import Path
from typing import Any, Literal

import torch

from lit_gans.benchmark.gpu_cells import MODES, Cell, flops_per_image, measure
from lit_gans.benchmark.gpu_races import measure_race, races
from lit_gans.benchmark.gpu_report import notes, tables
from lit_gans.benchmark.gpu_speeds import data_wait, evaluation
from lit_gans.benchmark.measure import environment, matrix_product_rate
from lit_gans.benchmark.report import markdown, report
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, nearest, one_line, refuse_not_positive
from lit_gans.config.registry import gans as registered
from lit_gans.training.adversarial import AdversarialModule

_SMALL = ("sngan", "wgan_gp", "r3gan")  # whose papers have images of 32 pixels; the others get 64
_MATRIX_SIZE = {"full": 8192, "smoke": 128}
_SECONDS = {"full": 1.0, "smoke": 0.01}  # of the measurement of a cell
_FIRST_ESTIMATE = {False: 4.0, True: 60.0}  # seconds of a cell, by whether it compiles
_SMOKE = {"image_size": 16, "generator_width": 4, "discriminator_width": 4}


def gpu(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    minutes: float = 8.0,
    device: Literal["cpu", "cuda"] = "cuda",
    gans: Sequence[str] = ("dcgan", "sngan", "wgan_gp", "d2gan", "d3gan", "gan", "pix2pix", "r3gan"),
    modes: Sequence[str] = ("fp32", "tf32", "bf16", "fp16", "channels_last", "compile"),
    batch_sizes: Sequence[int] = (64, 128, 256),
) -> dict[str, Any]:
    """Measures the training of all GANs on a GPU, in each precision, memory layout and compiled, within a time limit.

    Modes: `fp32` without TF32, `tf32`, `bf16` and `fp16`, in the default memory layout; `channels_last` is bf16 in that
    layout, `compile` is that with compiled networks. First come matrix products in bf16, the steps of DCGAN, SNGAN,
    WGAN-GP and D2GAN in turns with the tutorials' loop and one without Lightning, the wait for images that are stored
    on the device, and an evaluation; then a cell for each GAN, mode and batch size, the smallest batches first and
    compiled ones last. Cells for which no time is left are listed, as are those that fail. Returns and prints seconds,
    images, operations and bytes.

    Args:
        preset: `smoke` limits the sizes and finishes in seconds; its times are meaningless.
        output: optional JSON file to write; it is written after every cell, and at the end the tables beside it, as
            Markdown, under the same name with .md.
        minutes: time limit; a cell starts if its kind is expected to end within it.
        device: device to measure; `cpu` is for trying the command out.
        gans: names of GANs, the most telling first.
        modes: names of modes.
        batch_sizes: numbers of images per discriminator step.
    """
    where = chosen_device(device)
    refuse_not_positive(minutes=minutes)
    _refuse_names("gans", gans, registered())
    _refuse_names("modes", modes, MODES)
    if not batch_sizes or min(batch_sizes) < 2:
        raise RefusedInput(f"batch_sizes={list(batch_sizes)} must be at least 2 each.")
    deadline = time.monotonic() + 60 * minutes
    result: dict[str, Any] = {"benchmark": "gpu", "preset": preset, "minutes": minutes, **_machine(where)}
    result |= {"matrix_product": matrix_product_rate(where, torch.bfloat16, _MATRIX_SIZE[preset])}
    session = _Session(result, output, where, preset, deadline)
    session.run_races(races({name: registered()[name] for name in gans}, min(batch_sizes), where))
    session.run_parts()
    session.run_cells(_ordered(gans, modes, batch_sizes))
    if output is not None:
        Path(output).with_suffix(".md").write_text(markdown(tables(result), notes(result)))
    return report(result, tables(result), notes(result), output)


def _refuse_names(key: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise RefusedInput(f"{key}: there is no '{name}'; {nearest(name, known)}")


def _ordered(gans: Sequence[str], modes: Sequence[str], batch_sizes: Sequence[int]) -> list[Cell]:
    """Returns the cells, the most telling first, since time may not suffice for all."""
    cells = [Cell(gan, mode, size) for size in batch_sizes for gan in gans for mode in modes]
    return sorted(cells, key=lambda cell: (MODES[cell.mode].compile, cell.batch_size))  # stable


def _machine(device: torch.device) -> dict[str, Any]:
    found: dict[str, Any] = environment(device)
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        found |= {"memory": card.total_memory, "capability": f"{card.major}.{card.minor}", "driver": _driver()}
        found |= {"multiprocessors": card.multi_processor_count, "cuda": torch.version.cuda}
        found |= {"cudnn": torch.backends.cudnn.version()}
    return found


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return lines[0] if lines else None


def _module(gan: str, preset: str, **settings: Any) -> AdversarialModule:
    sizes: dict[str, Any] = _SMOKE if preset == "smoke" else {"image_size": 32 if gan in _SMALL else 64}
    module: AdversarialModule = registered()[gan](**{"channels": 3, **sizes, **_depth(gan, preset), **settings})
    return module


def _depth(gan: str, preset: str) -> dict[str, Any]:
    return {"patch_depth": 2} if gan == "pix2pix" and preset == "smoke" else {}


class _Session:
    """Measures parts and cells until time is up, and stores after each what is known."""

    def __init__(
        self, result: dict[str, Any], output: str | None, device: torch.device, preset: str, deadline: float
    ) -> None:
        self.result, self.output, self.device, self.preset, self.deadline = result, output, device, preset, deadline
        self.estimates = dict(_FIRST_ESTIMATE if preset == "full" else dict.fromkeys(_FIRST_ESTIMATE, 0.1))
        self.flops: dict[str, float] = {}
        result |= {"steps": {}, "cells": [], "failed": {}, "not_run": []}

    def run_races(self, cells: Sequence[Cell]) -> None:
        """Measures steps beside other loops."""
        for cell in cells:
            race = partial(measure_race, cell, partial(_module, cell.gan, self.preset), self.device)
            self._run(f"race of {cell}", race, partial(setitem, self.result["steps"], str(cell)))

    def run_parts(self) -> None:
        """Measures data and evaluation."""
        with tempfile.TemporaryDirectory() as folder:
            smoke = self.preset == "smoke"
            parts = {
                "data": partial(data_wait, Path(folder), self.device, smoke),
                "evaluation": partial(evaluation, Path(folder), self.device, smoke),
            }
            for name, part in parts.items():
                self._run(name, part, partial(setitem, self.result, name))

    def run_cells(self, cells: Sequence[Cell]) -> None:
        """Measures cells in order, as far as the time allows."""
        for cell in cells:
            compiles = MODES[cell.mode].compile
            if time.monotonic() + self.estimates[compiles] > self.deadline:
                self.result["not_run"].append(str(cell))
                continue
            begun = time.monotonic()
            self._run(str(cell), partial(self._cell, cell), self.result["cells"].append)
            # with a reserve: the next one may be of a larger network
            self.estimates[compiles] = 1.5 * (time.monotonic() - begun)
        self._store()

    def _cell(self, cell: Cell) -> dict[str, Any]:
        make = partial(_module, cell.gan, self.preset)
        if cell.gan not in self.flops:
            self.flops[cell.gan] = flops_per_image(make, self.device)
        return measure(
            cell, make, self.device, _SECONDS[self.preset], self.flops[cell.gan], self.result["matrix_product"]
        )

    def _run(self, name: str, work: Callable[[], Any], keep: Callable[[Any], Any]) -> None:
        """Runs a part if there is time; one that fails is noted, and the others still run."""
        if time.monotonic() > self.deadline:
            self.result["not_run"].append(name)
            return
        try:
            keep(work())
        except (RefusedInput, RuntimeError) as error:  # RuntimeError: those of torch, its compiler and CUDA
            self.result["failed"][name] = one_line(error)[:300]
        self._store()

    def _store(self) -> None:
        if self.output is not None:
            path = Path(self.output)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.result, indent=2) + "\n")
