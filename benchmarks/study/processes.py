"""The processes of a cell: on this machine, or one for each process that torchrun has started."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import socket
import threading
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch.distributed import TCPStore

from benchmarks.study.cells import Cell

_LIMIT = 900.0  # seconds for one cell, after which its processes are killed
_AGREE = timedelta(days=7)  # the other processes wait for the next cell
_END = "end"


class Processes:
    """Measures cells in processes of their own, forked from one that has imported the libraries.

    Under torchrun, rank 0 decides which cell is next and tells the others through a store; each process starts one rank
    of the cell, and those beyond its number of ranks wait for the next one.

    Args:
        cores: number of cores, which the processes of a cell on one machine share.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.rank, self.world = (
            int(os.environ.get(name, value)) for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"))
        )
        self.local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._address, self._index = os.environ.get("MASTER_ADDR", "127.0.0.1"), 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.study.measure"])
        if self.world > 1:
            is_server = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            port = int(os.environ["MASTER_PORT"])
            self._store = TCPStore(self._address, port, None, is_server, timeout=_AGREE)

    def numbers(self, device: str, most: int | None) -> tuple[int, ...]:
        """Returns the numbers of processes to measure: powers of two, and all of them."""
        here = self.world if self.world > 1 else torch.cuda.device_count() if device == "cuda" else self.cores
        if most is not None and device == "cpu" and self.world == 1:
            here = most
        found = {2**power for power in range(here.bit_length())} | {here}
        return tuple(sorted(number for number in found if number <= here and (most is None or number <= most)))

    def measure(self, cell: Cell) -> tuple[str, Any]:
        """Measures a cell; returns a `result`, a `reason` for which there is none, or an `error`."""
        with socket.create_server(("", 0)) as probe:
            port = int(probe.getsockname()[1])
        if self.world == 1:
            return self._run(cell, range(cell.ranks), cell.ranks, port)
        self._store.set(f"study/{self._index}", json.dumps([asdict(cell), port]))
        return self._own(cell, port)

    def follow(self) -> None:
        """Measures, on a rank other than 0, the cells that rank 0 names until it closes."""
        while (content := self._store.get(f"study/{self._index}").decode()) != _END:
            cell, port = json.loads(content)
            self._own(Cell(**cell), port)
        self._store.set(f"study/left/{self.rank}", "")

    def close(self) -> None:
        """Ends the study on all ranks."""
        if self.world > 1:
            self._store.set(f"study/{self._index}", _END)
            for rank in range(1, self.world):
                self._store.get(f"study/left/{rank}")

    def _own(self, cell: Cell, port: int) -> tuple[str, Any]:
        self._index += 1
        if self.rank >= cell.ranks:
            return "result", {}
        return self._run(cell, range(self.rank, self.rank + 1), self.local, port)

    def _run(self, cell: Cell, ranks: range, per_node: int, port: int) -> tuple[str, Any]:
        """Runs the ranks of this machine, and returns the first one's answer or the first error."""
        here = min(per_node, cell.ranks)
        processes, alive, answers = [], [], {}
        for rank in ranks:
            variables = {"RANK": rank, "WORLD_SIZE": cell.ranks, "LOCAL_RANK": rank % here, "LOCAL_WORLD_SIZE": here}
            variables |= {"GROUP_RANK": rank // here, "MASTER_ADDR": self._address, "MASTER_PORT": port}
            variables |= {"TORCHELASTIC_RUN_ID": "study", "TORCHELASTIC_USE_AGENT_STORE": False}
            ours, theirs = self._context.Pipe(duplex=False)
            ends, lives = self._context.Pipe(duplex=False)
            environment = {name: str(value) for name, value in variables.items()} if cell.ranks > 1 else {}
            arguments = (cell, environment, max(1, self.cores // here), theirs, ends)
            process = self._context.Process(target=_rank, args=arguments, daemon=True)
            process.start()
            theirs.close()
            ends.close()
            processes.append(process)
            alive.append(lives)
            answers[ours] = rank
        try:
            return _first_answer(answers)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _first_answer(answers: dict[Any, int]) -> tuple[str, Any]:
    """Returns the answer of the lowest rank once all have answered, or at once an answer that is no result."""
    found: dict[int, Any] = {}
    while answers:
        ready: list[Any] = wait(list(answers), _LIMIT)
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


def _rank(cell: Cell, environment: Mapping[str, str], threads: int, results: Connection, alive: Connection) -> None:
    """Measures a cell on one rank and sends the answer.

    Args:
        cell: cell to measure.
        environment: torchrun's variables.
        threads: number of threads that torch computes with.
        results: pipe for the answer.
        alive: pipe that closes when the study ends.
    """
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    for name in [name for name in os.environ if name in environment or name.startswith(("SLURM_", "TORCHELASTIC_"))]:
        del os.environ[name]  # of a launcher of the study: the cell may have fewer ranks
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    threads = cell.settings.get("threads", threads)
    if cell.settings.get("bind"):
        cores = sorted(os.sched_getaffinity(0))
        first = int(environment["LOCAL_RANK"]) * threads
        os.sched_setaffinity(0, cores[first : first + threads] or cores)
    torch.set_num_threads(threads)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    results.send(_answer(cell))
    threading.Event().wait()  # the study kills this process; finalizers of libraries may wait for other ranks


def _end_with(alive: Connection) -> None:
    try:
        alive.recv()
    except (EOFError, OSError):
        os._exit(1)  # not by SIGTERM, which Lightning catches: it waits for the end of a step that may never come


def _answer(cell: Cell) -> tuple[str, Any]:
    from benchmarks.study.measure import Unavailable, measure
    from lit_gans.common.errors import RefusedInput, one_line
    from lit_gans.common.quiet import quiet

    quiet()
    try:
        return "result", measure(cell)
    except (Unavailable, RefusedInput) as reason:
        return "reason", one_line(reason)
    except torch.OutOfMemoryError:
        return "reason", "the device has too little memory."
    except Exception:
        return "error", traceback.format_exc()
