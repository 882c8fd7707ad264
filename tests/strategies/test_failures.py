"""A rank that is killed, raises or hangs: every process ends, none is left behind, and the run resumes. On a folder of
pictures, so that ranks that read one packed file are tried as well.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.test_train import TINY

from . import ranks

TIMEOUT = 8  # seconds that a rank waits for the others

STALLED = TIMEOUT + 4  # seconds after which a rank goes on that the others have given up

SABOTAGED = (
    f"STALLED = {STALLED}"
    + '''
import os, signal, time
from pathlib import Path
from lit_gans.models.dcgan import DCGAN


class Sabotaged(DCGAN):
    """Fails once, on one rank, in the iteration after the third."""

    def training_step(self, data, batch_idx):
        mark = Path("failed")
        how, rank = os.environ["SABOTAGE"].split()
        if self.trainer.global_step == 3 and self.global_rank == int(rank) and not mark.exists():
            mark.write_text(str(time.time()))
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raises":
                raise RuntimeError("sabotaged")
            time.sleep(STALLED if how == "stalls" else 1000)
        super().training_step(data, batch_idx)
'''
)
YAML = (
    "defaults: [_schema/sabotaged@_here_]\nimage_size: ${data.image_size}\nchannels: ${data.channels}\nseed: ${seed}\n"
)


@pytest.fixture
def command(tmp_path):
    (tmp_path / "sabotaged.py").write_text(SABOTAGED)
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/sabotaged.yaml").write_text(YAML)
    photos(tmp_path / "photos")
    tiny = [
        item for item in TINY if not item.startswith(("model=", "data=", "data.batch_size", "callbacks.checkpoint"))
    ]
    return [
        "lit_gans.train",
        "model=sabotaged",
        f"hydra.searchpath=[file://{tmp_path / 'mine'}]",
        *tiny,
        "data=folder",
        "data.root=photos",
        "data.image_size=16",
        f"data.cache={tmp_path / 'cache'}",  # packed by one rank, read by all
        "data.batch_size=8",  # four iterations an epoch
        "callbacks.checkpoint.every_n_train_steps=1",
        "trainer.devices=2",
        "trainer.max_steps=6",
    ]


def photos(folder):
    folder.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)):
        Image.fromarray(pixels).save(folder / f"{number}.png")


def environment(how, rank):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    return kept | {"LIT_GANS_IMPORT": "sabotaged", "SABOTAGE": f"{how} {rank}", "OMP_NUM_THREADS": "1"}


def processes_in(folder):
    """The processes whose working directory is the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if entry.resolve() == folder.resolve():
                found.append((entry.parent / "cmdline").read_bytes())
        except OSError:
            continue
    return found


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
