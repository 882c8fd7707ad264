"""One of the processes that measure a cell. It is forked from a process that has imported the libraries."""

from __future__ import annotations

import logging
import os
import threading
import traceback
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import lightning  # noqa: F401 - imported once, before the processes are forked
import torch

from benchmarks.study.contract import Cell, Unavailable
from benchmarks.study.registry import parts
from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.common.quiet import quiet

_LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def main(cell: Cell, environment: Mapping[str, str], threads: int, results: Connection, alive: Connection) -> None:
    """Measures a cell and sends (kind, content): a `result`, a `reason` for which there is none, or an `error`.

    Args:
        cell: cell to measure.
        environment: environment variables of this process.
        threads: number of threads that torch computes with.
        results: pipe for the answer.
        alive: pipe that closes when the study ends.
    """
    threading.Thread(target=_end_with, args=(alive,), daemon=True, name="end-with-study").start()
    for name in [name for name in os.environ if name in _LAUNCH or name.startswith(("SLURM_", "TORCHELASTIC_"))]:
        del os.environ[name]  # of a launcher of the study: the cell may have fewer ranks
    os.environ.update(environment)
    torch.set_num_threads(threads)
    quiet()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    results.send(_answer(cell))
    threading.Event().wait()  # the study ends this process; finalizers of libraries may wait for other ranks


def _end_with(alive: Connection) -> None:
    try:
        alive.recv()
    except (EOFError, OSError):
        os._exit(1)  # not by SIGTERM, which Lightning catches: it waits for the end of a step that may never come


def _answer(cell: Cell) -> tuple[str, Any]:
    try:
        return "result", parts([cell.part])[cell.part].measure(cell)
    except (Unavailable, RefusedInput) as reason:
        return "reason", one_line(reason)
    except torch.OutOfMemoryError:
        return "reason", "the device has too little memory."
    except Exception:
        return "error", traceback.format_exc()
