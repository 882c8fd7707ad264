"""Processes that others start, on the command line that a user types: two nodes on one machine, over loopback, as
`torchrun --nnodes 2` starts them; and the same line as srun and DeepSpeed's launcher start it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .ranks import command_line, environments, free_port
from .sabotage import environment

STEPS = 6
# the mlp has no batch norm, which sees the microbatch of its rank only
TRAIN = f"""
train model=wgan_gp model.generator_width=4 model.discriminator_width=4 model.network=mlp
optimizer@model.generator_optimizer=sgd optimizer@model.discriminator_optimizer=sgd model.generator_optimizer.lr=0.01
model.discriminator_optimizer.lr=0.01 data=digits data.image_size=16 metrics=none logger=none callbacks.samples=null
trainer.max_steps={STEPS} trainer.accelerator=cpu
"""


def checkpoint_in(folder):
    """Returns the only checkpoint of a folder."""
    (last,) = folder.glob("outputs/*/version_*/checkpoints/last.ckpt")
    return torch.load(last, weights_only=True)


def finish(command, folder, variables=({},)):
    """Runs a command line in a process for each set of variables, and returns the checkpoint."""
    folder.mkdir()
    codes, printed = command_line(command.split(), folder, [environment() | each for each in variables])
    assert not any(codes), printed
    return checkpoint_in(folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The checkpoint of one process."""
    return finish(f"{TRAIN} data.batch_size=8", tmp_path_factory.mktemp("nodes") / "one")


def assert_trained_alike(found, alone):
    assert alone["global_step"] == found["global_step"] == STEPS
    for name, value in alone["state_dict"].items():
        torch.testing.assert_close(found["state_dict"][name], value, rtol=0, atol=1e-6)


NODE = "data.batch_size=4 trainer.num_nodes=2 trainer.devices=1 strategy=ddp trainer.strategy.hierarchical=true"


def test_two_nodes_train_the_weights_of_one_process(tmp_path, alone):
    assert_trained_alike(finish(f"{TRAIN} {NODE}", tmp_path / "nodes", environments(2, node_size=1)), alone)


@pytest.mark.slow
def test_two_nodes_started_by_torchrun_train_the_weights_of_one_process(tmp_path, alone):
    torchrun = "-m torch.distributed.run --nnodes=2 --nproc-per-node=1"
    torchrun += f" --master-addr=127.0.0.1 --master-port={free_port()}"
    train = f"-m lit_gans {TRAIN} {NODE}"
    arguments = {"cwd": tmp_path, "env": environment(), "text": True}
    arguments |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    nodes = [
        subprocess.Popen([sys.executable, *f"{torchrun} --node-rank={node} {train}".split()], **arguments)
        for node in (0, 1)
    ]
    try:
        for node in nodes:
            printed = node.communicate()[0]
            assert node.returncode == 0, printed
    finally:
        for node in nodes:
            node.kill()
    assert_trained_alike(checkpoint_in(tmp_path), alone)


def test_processes_of_srun_train_the_weights_of_one_in_the_folder_of_the_job(tmp_path, alone):
    train = f"{TRAIN} data.batch_size=4 trainer.devices=2 strategy=ddp"
    job = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "train",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "127.0.0.1",
        "MASTER_PORT": str(free_port()),  # Lightning's own is made of the job's number, and may be taken
    }
    variables = [job | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    assert_trained_alike(finish(train, tmp_path / "two", variables), alone)
    assert [run.name for run in tmp_path.glob("two/outputs/*/*")] == ["version_4711"]


@pytest.mark.slow
def test_deepspeeds_launcher_trains_the_weights_of_one_process(tmp_path, alone):
    launcher = "-m deepspeed.launcher.runner --num_gpus=2 --no_local_rank --no_python lit-gans"
    train = f"{TRAIN} data.batch_size=4 trainer.devices=2 strategy=deepspeed trainer.strategy.stage=1"
    train += " hydra.run.dir=outputs/wgan_gp/version_0"  # on which processes without a job's number cannot agree
    variables = environment()
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    command = [sys.executable, *launcher.split(), *train.split()]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_trained_alike(checkpoint_in(tmp_path), alone)
