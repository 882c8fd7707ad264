"""`python -m tests.golden.record` writes what every GAN computes in 10 seeded iterations; `test_golden.py` compares.

Everything is computed in float64, even random numbers and features, so that the record holds on every processor:
rounding errors, which grow with every Adam step, stay far below the tolerance. Record again only where a change of the
numbers is intended, and say so in the commit.
"""

import csv
import json
import os
import tempfile
from pathlib import Path

import torch

from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.strategies.ranks import environments, execute, start

RECORD = Path(__file__).with_name("record.json")
GANS = ("gan", "dcgan", "sngan", "wgan_gp", "d2gan", "d3gan", "pix2pix")
COMMON = (
    "data.batch_size=8",
    "trainer.max_steps=10",
    "trainer.log_every_n_steps=1",
    "trainer.accelerator=cpu",
    "metrics.extractor._target_=tests.golden.record.DigitsInFloat64",
    "metrics.num_samples=200",
    "metrics.every_n_steps=10",
    "logger=csv",
    "callbacks.samples.num=4",
)


class DigitsInFloat64(DigitsExtractor):
    """Digit classifier in float64. In float32, processors round features differently, which changes the FID by 1e-8."""

    def __init__(self):
        super().__init__()
        self.double()

    def forward(self, images):
        return self.classifier(images.double() / 255)  # without resizing: the images are gray and 32x32


def train(arguments, cwd):
    """Runs `lit-gans` with random numbers that are drawn in float64: processors differ in how they draw float32."""
    torch.set_default_dtype(torch.float64)
    execute(arguments, cwd)


def measure(processes):
    """Trains each GAN in 10 iterations on `processes` processes, and returns losses, metrics and weights by GAN."""
    command = ["train", "-m", "experiment=" + ",".join(f"{gan}_digits" for gan in GANS), *COMMON]
    command += ["trainer.precision=64-true"]
    if processes > 1:
        command += ["strategy=ddp", f"trainer.devices={processes}"]
    variables = [os.environ] if processes == 1 else environments(processes)
    with tempfile.TemporaryDirectory() as folder:
        variables = [each | {"LIT_GANS_CACHE": f"{folder}/cache"} for each in variables]
        codes, printed, _ = start("tests.golden.record.train", Path(folder), variables, arguments=command, cwd=folder)
        assert not any(codes), "\n".join(text[-3000:] for text in printed)
        runs = Path(folder) / "outputs/sweeps/version_0"
        return {gan: _read(runs / str(number)) for number, gan in enumerate(GANS)}


def _read(run):
    with (run / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {
        "losses": [
            {n: row[n] for n in sorted(row) if n.startswith("loss/")} for row in rows if "loss/generator" in row
        ],
        "metrics": {name: rows[-1][name] for name in sorted(rows[-1]) if name.startswith("metric/")},
        "weights": {name: _digest(tensor.double().flatten()) for name, tensor in sorted(state.items())},
    }


def _digest(values):
    """Returns a few numbers of a tensor: its norm, and the first, the middle and the last element."""
    return [values.norm().item(), *(values[index].item() for index in (0, len(values) // 2, -1))]


if __name__ == "__main__":
    record = {str(processes): measure(processes) for processes in (1, 2)}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
