"""What the check costs: `python -m tests.check.overhead` prints ratios of durations, and numbers of operators.

Iterations of a convolutional network are interleaved: without the check, while it watches, and after it has watched.
"""

import time
from itertools import pairwise
from statistics import median

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lit_gans.check import check_ranks

ROUNDS, STEPS = 15, 4


class Operators(TorchDispatchMode):
    """Counts operators."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


class Iterations:
    """A network and its optimizer."""

    def __init__(self):
        torch.manual_seed(0)
        channels = (3, 64, 128, 256)
        layers = [nn.Conv2d(one, other, 4, 2, 1) for one, other in pairwise(channels)]
        self.network = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
        self.optimizer = torch.optim.Adam(self.network.parameters())
        self.images = torch.randn(16, 3, 32, 32)

    def run(self, number=STEPS):
        begin = time.perf_counter()
        for _ in range(number):
            self.optimizer.zero_grad()
            self.network(self.images).square().mean().backward()
            self.optimizer.step()
        return time.perf_counter() - begin

    def watched(self):
        with check_ranks(steps=STEPS):
            return self.run()

    def after(self):
        with check_ranks(steps=1):
            self.run(1)
            return self.run()


def num_operators(run):
    with Operators() as operators:
        run()
    return operators.number


def main():
    torch.set_num_threads(1)
    iterations = Iterations()
    kinds = {"without": iterations.run, "watching": iterations.watched, "after": iterations.after}
    durations = {name: [] for name in kinds}
    for run in kinds.values():
        run()
    for _ in range(ROUNDS):
        for name, run in kinds.items():
            durations[name].append(run())
    without = median(durations["without"])
    for name in ("watching", "after"):
        print(f"{name}: {median(durations[name]) / without:.3f} of the duration without the check")
    plain = num_operators(iterations.run)
    print(f"operators in {STEPS} steps: {plain}, while watching {num_operators(iterations.watched)}", end=", ")
    with check_ranks(steps=1):
        iterations.run(1)
        print(f"afterwards {num_operators(iterations.run)}")


if __name__ == "__main__":
    main()
