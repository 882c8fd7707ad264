"""A rank that is killed, raises or hangs: every process ends, none is left behind, and the run resumes; also the ranks
of a command.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from . import ranks, sabotage
from .sabotage import FAILS_AT, STEPS, processes_in, wait_until_all_ended

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

FIRST = [("ddp", "killed", 0), ("ddp", "raises", 1), ("fsdp", "hangs", 1), ("deepspeed", "hangs", 0)]
REST = [("ddp", "killed", 1), ("ddp", "hangs", 1), ("ddp", "hangs", 0)]


def tiers(first, rest):
    """Marks the first for the tests of every change, the others for those before a release."""
    return [
        pytest.param(*each, marks=mark)
        for mark, group in ((pytest.mark.faults, first), (pytest.mark.slow, rest))
        for each in group
    ]


@pytest.fixture
def folder(tmp_path):
    """A folder in which no process is left when a test fails."""
    yield tmp_path
    for pid in processes_in(tmp_path):
        os.kill(pid, signal.SIGKILL)


def saved_step(folder):
    return torch.load(folder / "last.ckpt", weights_only=True)["global_step"]


@pytest.mark.parametrize(("strategy", "how", "rank"), tiers(FIRST, REST))
def test_all_ranks_end_and_the_run_resumes(folder, strategy, how, rank):
    """Where Lightning starts the second rank."""
    command = [sys.executable, "-m", *sabotage.command(strategy, how, rank)]
    arguments = {"cwd": folder, "env": sabotage.environment(), "capture_output": True, "text": True}
    failed = subprocess.run(command, **arguments)
    assert (folder / "failed").exists(), failed.stderr
    assert failed.returncode != 0
    wait_until_all_ended(folder)
    assert saved_step(folder) == FAILS_AT
    resumed = ranks.run("tests.strategies.sabotage.train", folder, strategy=strategy, folder=folder)
    assert resumed == [STEPS, STEPS]


@pytest.mark.faults
def test_a_rank_that_hangs_ends_with_the_process_that_started_it(folder):
    command = [sys.executable, "-m", *sabotage.command("ddp", "hangs", 1)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command, cwd=folder, env=sabotage.environment(), **quiet)
    while not (folder / "failed").exists() and first.poll() is None:
        time.sleep(0.1)
    assert (folder / "failed").exists()
    first.kill()
    first.wait()
    wait_until_all_ended(folder)


@pytest.mark.parametrize(
    "how",
    ["raises", pytest.param("killed", marks=pytest.mark.faults), pytest.param("stalls", marks=pytest.mark.faults)],
)
def test_no_rank_exits_with_success_after_a_failure(folder, how):
    """Whoever starts the ranks sees each one's exit code; here no parent ends the others."""
    path = "tests.strategies.sabotage.train"
    codes, printed, _ = ranks.launch(path, folder, strategy="ddp", how=how, rank=1, folder=folder)
    assert (folder / "failed").is_file(), printed
    assert all(codes), printed
    assert saved_step(folder) == FAILS_AT


# after a hang torchrun waits 30 s before it kills
@pytest.mark.parametrize("how", tiers([["killed"], ["stalls"]], [["raises"], ["hangs"]]))
def test_torchrun_restarts_the_ranks_and_the_run_resumes(folder, how):
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command = [sys.executable, "-m", *torchrun, "-m", *sabotage.command("ddp", how, 1)]
    done = subprocess.run(command, cwd=folder, env=sabotage.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "failed").is_file()
    assert saved_step(folder) == STEPS
    wait_until_all_ended(folder)


# ---- the ranks of a command

SABOTAGED = """
import os, signal
from pathlib import Path
from lit_gans.models.gan import GAN


class Sabotaged(GAN):
    def training_step(self, data, batch_idx):
        if self.trainer.global_step == 3 and self.global_rank == 1 and not Path("failed").exists():
            Path("failed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().training_step(data, batch_idx)
"""
MODEL = (
    "defaults: [_schema/sabotaged@_here_]\nimage_size: ${data.image_size}\nchannels: ${data.channels}\nseed: ${seed}\n"
)
TRAIN = """
-m lit_gans train model=sabotaged model.generator_width=4 model.discriminator_width=4 data=digits data.image_size=16
data.batch_size=8 metrics=none logger=none callbacks.samples=null callbacks.checkpoint.every_n_train_steps=1
strategy=ddp trainer.accelerator=cpu trainer.devices=2 trainer.max_steps=6
"""


def finish(folder, command):
    """Runs a command that trains a GAN of which a rank is killed, see `SABOTAGED`."""
    (folder / "sabotaged.py").write_text(SABOTAGED)
    (folder / "mine/model").mkdir(parents=True)
    (folder / "mine/model/sabotaged.yaml").write_text(MODEL)
    variables = sabotage.environment() | {"LIT_GANS_IMPORT": "sabotaged"}
    command = [sys.executable, *command.split(), f"hydra.searchpath=[file://{folder / 'mine'}]"]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def last_step(folder):
    (last,) = folder.glob("outputs/*/version_*/checkpoints/last.ckpt")
    return torch.load(last, weights_only=True)["global_step"]


@pytest.mark.faults
def test_all_ranks_of_a_command_end_and_leave_a_checkpoint(folder):
    failed = finish(folder, TRAIN)
    assert (folder / "failed").exists(), failed.stderr
    assert failed.returncode != 0
    wait_until_all_ended(folder)
    assert last_step(folder) == 3


@pytest.mark.faults
def test_torchrun_restarts_a_command_and_its_run_resumes(folder):
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node=2 --max-restarts=1"
    done = finish(folder, f"{torchrun} {TRAIN} resume=auto")
    assert done.returncode == 0, done.stderr
    assert (folder / "failed").exists()
    assert last_step(folder) == 6
    wait_until_all_ended(folder)
