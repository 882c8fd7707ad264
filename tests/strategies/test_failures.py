"""A rank that is killed, raises or hangs: every process ends, none is left behind, and the run resumes. On a folder of
pictures, so that ranks that read one packed file are tried as well.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from .sabotage import TIMEOUT, command_in, environment, processes_in


@pytest.fixture
def command(tmp_path):
    return command_in(tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("strategy", "how", "rank"),
    [
        *(
            ("ddp", how, rank)
            for how, rank in [("killed", 1), ("raises", 1), ("hangs", 1), ("hangs", 0), ("killed", 0)]
        ),
        ("fsdp", "hangs", 1),
        ("deepspeed", "hangs", 1),
    ],
)
def test_all_ranks_end_and_the_run_resumes(tmp_path, command, strategy, how, rank):
    command = [*command, f"strategy={strategy}", f"trainer.strategy.timeout={TIMEOUT}"]
    arguments = {"cwd": tmp_path, "env": environment(how, rank), "capture_output": True, "text": True}
    failed = subprocess.run([sys.executable, "-m", *command], timeout=120, **arguments)
    assert failed.returncode != 0
    while processes_in(tmp_path) and time.time() - float((tmp_path / "failed").read_text()) < TIMEOUT + 10:
        time.sleep(0.2)
    assert not processes_in(tmp_path)
    assert time.time() - float((tmp_path / "failed").read_text()) < TIMEOUT + 10
    resumed = subprocess.run([sys.executable, "-m", *command, "resume=auto"], timeout=120, **arguments)
    assert resumed.returncode == 0, resumed.stderr
    (last,) = tmp_path.glob("outputs/*/version_*/checkpoints/last.ckpt")
    assert torch.load(last, weights_only=True)["global_step"] == 6


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_rank_that_hangs_ends_with_the_process_that_started_it(tmp_path, command):
    command = [sys.executable, "-m", *command, "strategy=ddp", "trainer.strategy.timeout=1000"]
    first = subprocess.Popen(
        command, cwd=tmp_path, env=environment("hangs", 1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.time() + 120
    while not (tmp_path / "failed").exists() and time.time() < until:
        time.sleep(0.2)
    first.kill()
    first.wait()
    until = time.time() + 10
    while processes_in(tmp_path) and time.time() < until:
        time.sleep(0.2)
    assert not processes_in(tmp_path)
