"""DeepSpeed's launcher starts the command as torchrun does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("deepspeed")

TRAIN = [
    "train",
    "experiment=dcgan_digits",
    "strategy=deepspeed",
    "trainer.strategy.stage=1",
    "trainer.devices=2",
    "trainer.accelerator=cpu",
    "trainer.max_steps=2",
    "data.batch_size=4",
    "model.generator_width=4",
    "model.discriminator_width=4",
    "metrics=none",
    "logger=none",
    "callbacks.samples=null",
]
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc-per-node=2", "--standalone", "--no-python"],
    "deepspeed": ["deepspeed.launcher.runner", "--num_gpus=2", "--no_local_rank", "--no_python"],
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_both_launchers_train_the_same_weights(tmp_path):
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = programs + os.pathsep + environment["PATH"]
    weights = {}
    for name, launcher in LAUNCHERS.items():
        command = [sys.executable, "-m", *launcher, "lit-gans", *TRAIN, f"hydra.run.dir={tmp_path / name}"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-3000:]
        last = tmp_path / name / "checkpoints/last.ckpt"
        weights[name] = torch.load(last, weights_only=True)["state_dict"]
    assert all(torch.equal(weights["deepspeed"][key], value) for key, value in weights["torchrun"].items())
