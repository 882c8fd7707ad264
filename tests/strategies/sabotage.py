"""A training in which a rank is killed, raises, hangs or stalls, for the tests of what becomes of the others.

`python -m tests.strategies.sabotage STRATEGY HOW RANK` trains it in the current folder, on two processes. No test waits
for a number of seconds: a rank that hangs does so for longer than any test, and in that step the others wait in vain,
however slow the machine is.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule
from torch import nn
from torch.utils.data import DataLoader

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.processes import limit_waiting

from .ranks import ROOT, quiet_trainer

STRATEGIES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}
STEPS = 6
FAILS_AT = 3
FOR_EVER = 10_000  # seconds, as seen from a test


class Fragile(LightningModule):
    """Trains one layer, until a rank fails: once, in the iteration after the third."""

    def __init__(self, how, rank):
        super().__init__()
        self.automatic_optimization = False
        self.layer = nn.Linear(4, 1)
        self.how, self.rank = how, rank
        self.fails = not Path("failed").exists()  # decided before any rank can have failed
        Path(f"rank_{os.environ.get('LOCAL_RANK', 0)}").write_text(str(os.getpid()))

    def training_step(self, batch, batch_idx):
        if self.fails and self.trainer.global_step == FAILS_AT:
            limit_waiting(timedelta(seconds=2))  # on every rank: from here on all wait in vain
            if self.global_rank == self.rank:
                Path("failed").touch()
                fail(self.how, int(Path(f"rank_{1 - self.rank}").read_text()))
        self.manual_backward(self.layer(batch).square().mean())
        self.optimizers().step()
        self.optimizers().zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return DataLoader(torch.randn(64, 4), batch_size=8)  # four iterations an epoch on two ranks


class SaveAlways(Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.save_checkpoint("last.ckpt")


def fail(how, other):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises":
        raise RuntimeError("sabotaged")
    if how == "hangs":
        time.sleep(FOR_EVER)
    while is_running(other):  # it stalls: goes on only after the other has given up
        time.sleep(0.1)


def train(strategy, how="", rank=-1, folder="."):
    """Trains on two ranks, from the last checkpoint where there is one, and returns the number of steps."""
    os.chdir(folder)
    trainer = quiet_trainer(
        max_steps=STEPS, max_epochs=-1, devices=2, strategy=STRATEGIES[strategy](), callbacks=[SaveAlways()]
    )
    last = Path("last.ckpt")
    trainer.fit(Fragile(how, rank), ckpt_path=last if last.exists() else None, weights_only=True)
    return trainer.global_step


def command(*arguments):
    """Returns the module and the arguments that train with a strategy, a way to fail and a rank."""
    return ["tests.strategies.sabotage", *map(str, arguments)]


def environment():
    """Returns an environment in which processes that work elsewhere find this file."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    return kept | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}


def is_running(pid):
    """Whether a process exists and has not ended: one that nobody has waited for still has an entry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_in(folder):
    """Returns the ids of the running processes whose working directory is the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if entry.resolve() == folder.resolve() and is_running(entry.parent.name):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_until_all_ended(folder):
    """Waits until no process works in a folder: for ever, so that it is the test's time limit that fails."""
    while processes_in(folder):
        time.sleep(0.1)


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
