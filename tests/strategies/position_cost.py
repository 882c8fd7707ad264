"""`python -m tests.strategies.position_cost` measures what it costs to find ranks that disagree, on two ranks of ddp.

Smallest times are compared with the smallest step, since anything else that runs only adds to them.
"""

import tempfile
import time
from pathlib import Path

from lightning.pytorch import Callback
from torch.utils.data import DataLoader

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.rank_positions import Positions

from . import ranks
from .own_modules import Own
from .test_own_module import train


class Measure(Callback):
    """Times the steps of a training, then one event and one comparison."""

    def __init__(self):
        self.steps = []

    def on_train_batch_start(self, *_):
        self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer, *_):
        self.steps.append(time.perf_counter() - self.begin)
        if len(self.steps) == 120:
            self.events = trainer.strategy.positions.events()[-1].number / len(self.steps)

    def on_train_end(self, trainer, *_):
        positions, watch = Positions(), trainer.strategy._position_watch
        self.event = smallest(lambda: [positions.note("the backward of generator") for _ in range(1000)]) / 1000
        self.comparison, self.period = smallest(watch._compare), watch._period


class Longer(Own):
    def train_dataloader(self):
        return DataLoader([*super().train_dataloader()] * 20, batch_size=None)


def smallest(function, times=20):
    """Returns the shortest time of some calls, in seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        found.append(time.perf_counter() - begin)
    return min(found)


def on_a_rank():
    measure = Measure()
    train(Longer, devices=2, strategy=NetworkDDP(), callbacks=[measure])
    return min(measure.steps), measure.events, measure.event, measure.comparison, measure.period


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = ranks.run(f"{__spec__.name}.on_a_rank", Path(folder))
    for rank, (step, events, event, comparison, period) in enumerate(found):
        print(
            f"rank {rank}: smallest step {1e3 * step:.2f} ms; {events:.1f} events of {1e6 * event:.2f} us, that is"
            f" {100 * events * event / step:.2f} % of it; a comparison {1e3 * comparison:.2f} ms every {period:.2f} s,"
            f" {100 * comparison / period:.3f} %"
        )
