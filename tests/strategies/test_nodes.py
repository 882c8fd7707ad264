"""Two nodes: `torchrun --nnodes 2` twice on one machine, over loopback, on the command line that a user types."""

import os
import subprocess
import sys

import pytest
import torch

from .ranks import free_port

STEPS = 20
TRAIN = [
    "lit_gans.train",
    "model=wgan_gp",
    "model.generator_width=4",
    "model.discriminator_width=4",
    "model.network=mlp",  # no batch norm, whose parts of a batch see each other
    "optimizer@model.generator_optimizer=sgd",
    "optimizer@model.discriminator_optimizer=sgd",
    "model.generator_optimizer.learning_rate=0.01",
    "model.discriminator_optimizer.learning_rate=0.01",
    "data=digits",
    "data.image_size=16",
    "metrics=none",
    "logger=none",
    "callbacks.samples=null",
    f"trainer.max_steps={STEPS}",
    "trainer.accelerator=cpu",
]


def finish(commands, folder):
    """Runs commands side by side; returns the only checkpoint that is there afterwards."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    arguments = {"cwd": folder, "env": kept | {"OMP_NUM_THREADS": "1"}, "text": True}
    arguments |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    processes = [subprocess.Popen([sys.executable, "-m", *command], **arguments) for command in commands]
    try:
        for process in processes:
            printed = process.communicate(timeout=250)[0]
            assert process.returncode == 0, printed
    finally:
        for process in processes:
            process.kill()
    (last,) = folder.glob("outputs/*/version_*/checkpoints/last.ckpt")
    return torch.load(last, weights_only=True)


@pytest.mark.parametrize("settings", [["strategy=ddp", "trainer.strategy.hierarchical=true"]], ids=" ".join)
def test_two_nodes_train_the_weights_of_one_process(tmp_path, settings):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    alone = finish([[*TRAIN, "data.batch_size=8"]], folders[0])
    torchrun = ["torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
    torchrun += [f"--master-port={free_port()}"]
    train = [*TRAIN, "data.batch_size=4", "trainer.num_nodes=2", "trainer.devices=1", *settings]
    both = finish([[*torchrun, f"--node-rank={node}", "-m", *train] for node in (0, 1)], folders[1])
    assert alone["global_step"] == both["global_step"] == STEPS
    for name, value in alone["state_dict"].items():
        torch.testing.assert_close(both["state_dict"][name], value, rtol=0, atol=1e-6)
