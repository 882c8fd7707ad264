"""Milliseconds of a save and of a verified load: `python -m tests.checkpoints.cost CHECKPOINT`, a file."""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.checkpoints.torch_files import read_torch_file

ROUNDS = 15


def main(path):
    torch.set_num_threads(1)
    checkpoint = torch.load(path, weights_only=True)
    with TemporaryDirectory(dir=Path(path).parent) as folder:
        target = Path(folder) / "last.ckpt"
        ours, lightning = CheckpointFiles(), TorchCheckpointIO()

        def without_fsync():
            with patch("os.fsync"):
                ours.save_checkpoint(checkpoint, target)

        ways = {
            "save, Lightning": lambda: lightning.save_checkpoint(checkpoint, target),
            "save": lambda: ours.save_checkpoint(checkpoint, target),
            "save without fsync": without_fsync,
            "load, torch.load": lambda: torch.load(target, weights_only=True),
            "load": lambda: read_torch_file(target),
        }
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                times[name].append(1e3 * (time.perf_counter() - start))
        print(f"{target.stat().st_size / 1e6:.2f} MB")
    for name, values in times.items():
        values.sort()
        print(f"{name:20} {values[len(values) // 2]:8.1f} ms ({values[0]:.1f} to {values[-1]:.1f})")


if __name__ == "__main__":
    main(sys.argv[1])
