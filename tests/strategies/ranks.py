"""Runs a function on several ranks over gloo, each a process of its own, as `torchrun` would start them."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path

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


class Server:
    """The process that forks ranks (see `fork_server`): one for each process of pytest, started once."""

    def __init__(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PL_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.strategies.fork_server"],
            # earlier versions of torch start their compiler's workers from a thread, which a fork would lack
            env=kept | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def run(self, grace=None, **request):
        """Forks a rank for each environment, and returns their exit codes once all have ended; kills the others `grace`
        seconds after one has failed.
        """
        print(json.dumps({"grace": grace, **request}), file=self.process.stdin, flush=True)
        pids, codes = self._answer(), None
        try:
            codes = self._answer()
        finally:
            if codes is None:  # the test ends early: the server must be free for the next one
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._answer()
        return codes

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, "the fork server has ended"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


server = cache(Server)


def start(function, place, variables, grace=None, /, **arguments):
    """Runs a function (its dotted name) in processes with some environments, and keeps its files in a folder; `grace`:
    see `Server.run`.

    Returns their exit codes, their output, and the file of their arguments.
    """
    file = place / f"arguments_{next(_RUNS)}.pt"
    torch.save(arguments, file)
    outputs = [f"{file}.{number}.txt" for number in range(len(variables))]
    codes = server().run(grace, function=function, arguments=str(file), environments=variables, outputs=outputs)
    return codes, [Path(output).read_text() for output in outputs], file


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
