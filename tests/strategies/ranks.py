"""Runs a function on several ranks over gloo, each a process of its own, as `torchrun` would start them."""

import gc
import importlib
import math
import multiprocessing
import os
import socket
import sys
import time
from datetime import timedelta
from functools import cache
from itertools import count
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from unittest.mock import patch

import torch
from lightning.pytorch import Trainer
from torch.distributed import TCPStore

ROOT = Path(__file__).parents[2]
_RUNS = count()
_STORES = []  # of the ranks of this process


def environment(rank, world_size, port, node_size=None):
    """Returns the environment that torchrun gives a rank."""
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


def quiet_trainer(**arguments):
    """Returns a trainer on the CPU that logs, shows and saves nothing, with the data as the module gives them."""
    torch.set_num_threads(1)
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = dict.fromkeys((*switches, "use_distributed_sampler"), False)
    return Trainer(accelerator="cpu", **(quiet | arguments))


@cache
def forking():
    """Returns the context of a process that has imported everything (see `fork_server`) and forks ranks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.strategies.fork_server"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
    # earlier versions of torch start their compiler's workers from a thread, which a fork would lack
    kept |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with patch.dict(os.environ, kept | {"PYTHONPATH": str(ROOT)}, clear=True):
        forkserver.ensure_running()
    return context


def start(function, place, variables, grace=math.inf, /, **arguments):
    """Runs a function (its dotted name) in processes with some environments, and keeps its files in a folder; kills the
    others `grace` seconds after one has failed.

    Returns their exit codes, their output, and the file of their arguments.
    """
    file = place / f"arguments_{next(_RUNS)}.pt"
    torch.save(arguments, file)
    outputs = [Path(f"{file}.{number}.txt") for number in range(len(variables))]
    pairs = zip(variables, outputs, strict=True)
    method = multiprocessing.get_start_method()
    processes = [forking().Process(target=_run, args=(function, file, *pair, method)) for pair in pairs]
    failed_at = math.inf
    try:
        for process in processes:
            process.start()
        while (alive := [each for each in processes if each.is_alive()]) and time.monotonic() < failed_at + grace:
            wait([each.sentinel for each in alive], timeout=0.1)
            if any(each.exitcode for each in processes):
                failed_at = min(failed_at, time.monotonic())
    finally:  # also where the test ends early
        for process in processes:
            process.kill()
            process.join()
    return [process.exitcode for process in processes], [output.read_text() for output in outputs], file


def _run(function, file, variables, output, start_method):
    """Runs a function in a forked process, and keeps what it prints and returns."""
    # not that of the fork server, whose workers of a loader would outlive a rank that is killed
    multiprocessing.set_start_method(start_method, force=True)
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ.clear()
    os.environ.update(variables)
    torch.use_deterministic_algorithms(True)  # fills memory that nobody has initialized with NaN
    place, _, name = function.rpartition(".")
    run, arguments = getattr(importlib.import_module(place), name), torch.load(file, weights_only=False)
    gc.freeze()  # DeepSpeed collects garbage whenever it makes an engine
    torch.save(run(**arguments), f"{file}.{os.environ.get('RANK', 0)}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def environments(world_size, node_size=None):
    """Returns the environments of ranks that share a store of this process, as they share torchrun's: no rank has to
    open a port, which another process may have taken since it was found free.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=4))
    _STORES.append(store)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return [environment(rank, world_size, store.port, node_size) | agent for rank in range(world_size)]


def launch(function, place, /, world_size=2, node_size=None, **arguments):
    """Runs a function on ranks as `torchrun` would start them; returns as `start` does."""
    return start(function, place, environments(world_size, node_size), **arguments)


def run(function, place, /, world_size=2, node_size=None, **arguments):
    """Returns what a function returns on each rank."""
    codes, printed, file = start(function, place, environments(world_size, node_size), 10, **arguments)
    assert not any(codes), "\n".join(text[-3000:] for text in printed)
    return [torch.load(f"{file}.{rank}", weights_only=False) for rank in range(world_size)]


def command_line(arguments, cwd, variables):
    """Runs `lit-gans` in a folder, in a process for each environment; returns exit codes and output."""
    return start("tests.strategies.ranks.execute", cwd, variables, arguments=arguments, cwd=cwd)[:2]


def execute(arguments, cwd):
    from lit_gans.cli.main import main

    os.chdir(cwd)
    sys.argv = ["lit-gans", *arguments]
    main()
