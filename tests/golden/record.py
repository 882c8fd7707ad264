"""`python -m tests.golden.record` writes what every GAN computes in 10 seeded iterations; `test_golden.py` compares.

In float64, so that the record holds on every processor: rounding, which grows with every Adam step, stays far below
any tolerance. Record again only where a change of the numbers is intended, and say so in the commit.
"""

import csv
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path

import torch

from tests.strategies.ranks import command_line

RECORD = Path(__file__).with_name("record.json")
GANS = ("gan", "dcgan", "sngan", "wgan_gp", "d2gan", "d3gan", "pix2pix")
COMMON = (
    "data.batch_size=8",
    "trainer.max_steps=10",
    "trainer.log_every_n_steps=1",
    "trainer.accelerator=cpu",
    "metrics.num_samples=200",
    "metrics.every_n_steps=10",
    "logger=csv",
    "callbacks.samples.num=4",
)


def this_platform():
    """What the last bits of results depend on beside the code: library, processor and the kernels chosen for it."""
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def measure(processes):
    """Trains each GAN in 10 iterations on `processes` processes, and returns losses, metrics and weights by GAN."""
    command = ["train", "-m", "experiment=" + ",".join(f"{gan}_digits" for gan in GANS), *COMMON]
    command += ["trainer.precision=64-true"]
    if processes > 1:
        command += ["strategy=ddp", f"trainer.devices={processes}"]
    with tempfile.TemporaryDirectory() as folder:
        (code,), (printed,) = command_line(command, Path(folder), [os.environ | {"LIT_GANS_CACHE": f"{folder}/cache"}])
        assert code == 0, printed[-3000:]
        runs = Path(folder) / "outputs/sweeps/version_0"
        return {gan: _read(runs / str(number)) for number, gan in enumerate(GANS)}


def _read(run):
    with (run / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return {
        "losses": [
            {n: row[n] for n in sorted(row) if n.startswith("loss/")} for row in rows if "loss/generator" in row
        ],
        "metrics": {name: rows[-1][name] for name in sorted(rows[-1]) if name.startswith("metric/")},
        "norms": {name: float(tensor.double().norm()) for name, tensor in sorted(state.items())},
        "weights": digest.hexdigest(),
    }


if __name__ == "__main__":
    record = {"platform": this_platform(), "processes": {str(number): measure(number) for number in (1, 2)}}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
