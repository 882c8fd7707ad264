"""Starts the processes of a cell: on this machine, or one for each process of torchrun or SLURM."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any

from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from torch.distributed import TCPStore

from benchmarks.study.contract import Cell
from benchmarks.study.rank import main

_LIMIT = 900.0  # seconds for one cell, after which its processes are ended
_AGREE = timedelta(days=7)  # the other processes wait for the next cell
_END = "end"


class Launcher:
    """Measures cells in processes of their own on this machine.

    Args:
        cores: number of cores, which the processes of a cell share.
    """

    local_ranks = 1  # processes of an outside launcher on this machine
    nodes = 1

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.study.rank"])

    def measure(self, cell: Cell) -> tuple[str, Any]:
        """Measures a cell and returns (kind, content), see `rank.main`."""
        port = free_port()
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return self._run(cell, range(cell.ranks), cell.ranks, common)

    def _run(self, cell: Cell, ranks: range, per_node: int, common: Mapping[str, str]) -> tuple[str, Any]:
        """Runs some ranks of a cell, those of this machine, and returns the first one's answer or the first error."""
        threads = max(1, self.cores // max(1, min(per_node, cell.ranks)))
        processes, alive = [], []
        answers: dict[Any, int] = {}
        for rank in ranks:
            ours, theirs = self._context.Pipe(duplex=False)
            ends, lives = self._context.Pipe(duplex=False)
            environment = dict(common) | rank_variables(rank, cell.ranks, per_node) if cell.ranks > 1 else {}
            process = self._context.Process(target=main, args=(cell, environment, threads, theirs, ends), daemon=True)
            process.start()
            theirs.close()
            ends.close()
            processes.append(process)
            answers[ours] = rank
            alive.append(lives)
        try:
            return _first_answer(answers)
        finally:
            for process in processes:
                process.kill()
                process.join()

    def close(self) -> None:
        """Ends the study for the processes that follow this one; none here."""


def _first_answer(answers: dict[Any, int]) -> tuple[str, Any]:
    """Returns the answer of the lowest rank once all have answered, or at once an answer that is no result."""
    until = time.monotonic() + _LIMIT
    found: dict[int, Any] = {}
    while answers:
        ready: list[Any] = wait(list(answers), max(0.0, until - time.monotonic()))
        if not ready:
            return "error", f"no result after {_LIMIT:.0f} s."
        for connection in ready:
            rank = answers.pop(connection)
            try:
                kind, content = connection.recv()
            except EOFError:
                return "error", f"rank {rank} ended without a result, which the system does if memory is exhausted."
            if kind != "result":
                return kind, content
            found[rank] = content
    return "result", found[min(found)]


def rank_variables(rank: int, ranks: int, per_node: int) -> dict[str, str]:
    """Returns torchrun's environment variables of a rank."""
    on_node = min(per_node, ranks)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % on_node),
        "LOCAL_WORLD_SIZE": str(on_node),
        "GROUP_RANK": str(rank // on_node),
        "TORCHELASTIC_RUN_ID": "study",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # the ranks of a cell meet at a port of their own
    }


def free_port() -> int:
    """Returns a port of this machine that is currently free."""
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


class OutsideLauncher(Launcher):
    """Measures cells together with the other processes that torchrun or SLURM started, one rank in each.

    Rank 0 decides which cell is next and tells the others through a store; those beyond the cell's number of ranks
    wait for the next one.

    Args:
        cores: number of cores of this machine.
        environment: where the other processes are.
    """

    def __init__(self, cores: int, environment: TorchElasticEnvironment | SLURMEnvironment) -> None:
        super().__init__(cores)
        self.rank, self.world = environment.global_rank(), environment.world_size()
        self.local_ranks = _local_ranks(environment)
        self.nodes = max(1, self.world // self.local_ranks)
        self._address, self._index = environment.main_address, 0
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        is_server = self.rank == 0 and not agent
        self._store = TCPStore(self._address, environment.main_port, None, is_server, timeout=_AGREE)

    def measure(self, cell: Cell) -> tuple[str, Any]:
        port = free_port()
        self._store.set(f"study/{self._index}", json.dumps([asdict(cell), port]))
        return self._own(cell, port)

    def follow(self) -> None:
        """Measures, on a rank other than 0, the cells that rank 0 names until it closes."""
        while True:
            content = self._store.get(f"study/{self._index}").decode()
            if content == _END:
                self._store.set(f"study/left/{self.rank}", "")
                return
            cell, port = json.loads(content)
            self._own(Cell(**cell), port)

    def _own(self, cell: Cell, port: int) -> tuple[str, Any]:
        self._index += 1
        if self.rank >= cell.ranks:
            return "result", {}
        common = {"MASTER_ADDR": self._address, "MASTER_PORT": str(port)}
        return self._run(cell, range(self.rank, self.rank + 1), self.local_ranks, common)

    def close(self) -> None:
        """Ends the study on all ranks."""
        self._store.set(f"study/{self._index}", _END)
        for rank in range(1, self.world):
            self._store.get(f"study/left/{rank}")


def _local_ranks(environment: TorchElasticEnvironment | SLURMEnvironment) -> int:
    if isinstance(environment, TorchElasticEnvironment):
        return int(os.environ["LOCAL_WORLD_SIZE"])
    return int(os.environ["SLURM_NTASKS"]) // int(os.environ["SLURM_NNODES"])


def launcher(cores: int) -> Launcher:
    """Returns the launcher for the environment that this process was started in."""
    for kind in (TorchElasticEnvironment, SLURMEnvironment):
        if kind.detect():
            environment = kind()
            return OutsideLauncher(cores, environment) if environment.world_size() > 1 else Launcher(cores)
    return Launcher(cores)
