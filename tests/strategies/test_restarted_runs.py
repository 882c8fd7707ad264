"""What torchrun and others who start the ranks themselves see of a rank that fails: restarts, and every exit code."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from . import ranks
from .sabotage import TIMEOUT, command_in, environment, processes_in


@pytest.fixture
def command(tmp_path):
    return command_in(tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "how",
    [
        "raises",
        "killed",
        "stalls",
        pytest.param("hangs", marks=pytest.mark.slow),  # torchrun waits 30 s before it kills
    ],
)
def test_torchrun_restarts_and_the_run_goes_on_by_itself(tmp_path, command, how):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", "-m"]
    done = subprocess.run(
        [*torchrun, *command, "strategy=ddp", f"trainer.strategy.timeout={TIMEOUT}", "resume=auto"],
        timeout=200,
        cwd=tmp_path,
        env=environment(how, 1),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "failed").is_file()
    (last,) = tmp_path.glob("outputs/*/version_*/checkpoints/last.ckpt")
    assert torch.load(last, weights_only=True)["global_step"] == 6
    assert not processes_in(tmp_path)


@pytest.mark.parametrize("how", ["raises", "killed", "stalls"])
def test_no_rank_ends_as_if_all_were_well(tmp_path, command, how):
    """Whoever starts the ranks sees each one's exit code; here no parent ends the others."""
    settings = ["strategy=ddp", f"trainer.strategy.timeout={TIMEOUT}", "hydra.run.dir=run"]
    port, told = ranks.free_port(), environment(how, 1)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *command, *settings],
            cwd=tmp_path,
            env=ranks.environment(rank, 2, port) | told,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        printed = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert (tmp_path / "failed").is_file(), printed
    assert all(process.returncode for process in processes), printed
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["global_step"] == 3
