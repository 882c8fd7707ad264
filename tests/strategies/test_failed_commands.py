"""A rank of the command line is killed: all processes end, and torchrun resumes the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .sabotage import environment, processes_in, wait_until_all_ended

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc"),
]

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


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sabotaged.py").write_text(SABOTAGED)
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/sabotaged.yaml").write_text(MODEL)
    yield tmp_path
    for pid in processes_in(tmp_path):
        os.kill(pid, 9)


def finish(folder, command):
    variables = environment() | {"LIT_GANS_IMPORT": "sabotaged"}
    command = [sys.executable, *command.split(), f"hydra.searchpath=[file://{folder / 'mine'}]"]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def last_step(folder):
    (last,) = folder.glob("outputs/*/version_*/checkpoints/last.ckpt")
    return torch.load(last, weights_only=True)["global_step"]


def test_all_ranks_end_and_leave_a_checkpoint(folder):
    failed = finish(folder, TRAIN)
    assert (folder / "failed").exists(), failed.stderr
    assert failed.returncode != 0
    wait_until_all_ended(folder)
    assert last_step(folder) == 3


def test_torchrun_restarts_and_the_run_goes_on_by_itself(folder):
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node=2 --max-restarts=1"
    done = finish(folder, f"{torchrun} {TRAIN} resume=auto")
    assert done.returncode == 0, done.stderr
    assert (folder / "failed").exists()
    assert last_step(folder) == 6
    wait_until_all_ended(folder)
