"""`lit-gans bench startup`: run time of commands, compared with `import lightning.pytorch`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table
from torch.utils.data import DataLoader

from lit_gans.benchmark.measure import environment, quiet_trainer, spread
from lit_gans.benchmark.report import median, quartiles, report, table_of
from lit_gans.benchmark.turns import ratios, take_turns
from lit_gans.common.errors import refuse_below
from lit_gans.models.dcgan import DCGAN

_ROUNDS = {"full": 9, "smoke": 1}
_IMPORT = "import lightning.pytorch"
_CLI = [sys.executable, "-m", "lit_gans"]
_REFUSED = 2


def startup(
    preset: Literal["full", "smoke"] = "full", rounds: int | None = None, output: str | None = None
) -> dict[str, Any]:
    """Times new processes in turns: Lightning's import, ours, `sample` of 4 images, and an invalid key.

    The checkpoint contains a tiny DCGAN. Ratios to Lightning's import are computed within a round. A warm-up round
    fills the disk caches, except in `smoke`.

    Args:
        preset: `smoke` finishes in seconds; its times are inaccurate.
        rounds: number of rounds; null uses the preset's number.
        output: optional JSON file to write.

    Returns:
        Seconds of each process, and their ratios to the import, with quartiles over the rounds.
    """
    rounds = _ROUNDS[preset] if rounds is None else rounds
    refuse_below(1, rounds=rounds)
    warmup = 0 if preset == "smoke" else 1
    with tempfile.TemporaryDirectory() as folder:
        works = _works(Path(folder))
        found = take_turns(works, warmup + rounds)
    seconds = {name: times[warmup:] for name, times in found.items()}
    result = {
        "benchmark": "startup",
        "preset": preset,
        "rounds": rounds,
        **environment(torch.device("cpu")),
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "ratio_to_import": {name: ratios(times, seconds[_IMPORT]) for name, times in seconds.items()},
    }
    note = f"on {result['device_name']}, python {result['python']}, torch {result['torch']}"
    return report(result, [_table(result)], [note], output)


def _works(folder: Path) -> dict[str, Callable[[], float]]:
    checkpoint = _tiny_checkpoint(folder / "tiny.ckpt")
    sample = [*_CLI, "sample", f"checkpoint={checkpoint}", "num=4", f"output={folder / 'generated'}"]
    return {
        _IMPORT: lambda: _seconds([sys.executable, "-c", _IMPORT], folder),
        "from lit_gans import DCGAN": lambda: _seconds([sys.executable, "-c", "from lit_gans import DCGAN"], folder),
        "lit-gans sample": lambda: _seconds(sample, folder),
        "lit-gans train modle=x": lambda: _seconds([*_CLI, "train", "modle=x"], folder, _REFUSED),
    }


def _seconds(command: list[str], folder: Path, expected: int = 0) -> float:
    """Runs a command in a folder and returns its seconds.

    Raises:
        RuntimeError: another exit code than the expected one.
    """
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != expected:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr}")
    return seconds


def _tiny_checkpoint(path: Path) -> Path:
    module = DCGAN(image_size=16, channels=1, generator_width=4, discriminator_width=4, latent_dim=8)
    trainer = quiet_trainer("cpu", devices=1, max_steps=1, default_root_dir=path.parent)
    images: Any = [torch.zeros(1, 16, 16)] * 4
    trainer.fit(module, DataLoader(images, batch_size=4))
    trainer.save_checkpoint(path)
    return path


def _table(result: dict[str, Any]) -> Table:
    table = table_of("start-up, fresh processes", "", "seconds", "quartiles", "ratio to the import", "quartiles")
    for name, seconds in result["seconds"].items():
        ratio = result["ratio_to_import"][name]
        table.add_row(
            name, median(seconds, ".2f"), quartiles(seconds, ".2f"), median(ratio, ".2f"), quartiles(ratio, ".2f")
        )
    return table
