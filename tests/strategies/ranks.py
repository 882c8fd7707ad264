"""Runs a function on several ranks over gloo, each a process of its own, as `torchrun` would start them."""

import os
import socket
import subprocess
import sys

import torch


def environment(rank, world_size, port, node_size=None):
    """What torchrun tells a rank."""
    node_size = node_size or world_size
    return os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % node_size),
        "GROUP_RANK": str(rank // node_size),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(node_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "tests",
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(function, folder, world_size=2, node_size=None, timeout=280, **arguments):
    """Returns what `function` (its dotted name) returns on each rank."""
    file = folder / "arguments.pt"
    torch.save(arguments, file)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.strategies.worker", function, str(file)],
            env=environment(rank, world_size, port, node_size),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    printed = []
    try:
        printed = [process.communicate(timeout=timeout)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert all(process.returncode == 0 for process in ranks), "\n".join(text[-3000:] for text in printed)
    return [torch.load(f"{file}.{rank}", weights_only=False) for rank in range(world_size)]
