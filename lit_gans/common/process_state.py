"""Global state of a process that a training changes: environment variables, flags of torch, random numbers, signals."""

from __future__ import annotations

import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import matplotlib
import numpy as np
import torch

from lit_gans.common.noise import forked

_SIGNALS = [number for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", None)) if number]
_LAUNCHED = "LOCAL_RANK"  # variable of a launcher, and of Lightning when it starts further processes


@contextmanager
def process_state_restored() -> Iterator[None]:
    """Restores the global state of the process when a training ends or raises, so that the next training in the process
    equals the same training alone.

    Lightning sets the flags for `deterministic` and `benchmark` and does not reset them. If it finds the environment
    variables that it has set for further processes, it attributes them to a launcher. A module or a callback may change
    more, such as the default data type. The process group is destroyed, unless a launcher started this process.
    """
    launched, before = _LAUNCHED in os.environ, [(read(), read, write) for read, write in _STATES]
    # Lightning's `isolate_rng` does not restore them if an exception is raised
    numbers, numpy_numbers = random.getstate(), np.random.get_state()
    with warnings.catch_warnings(), matplotlib.rc_context(), forked():
        try:
            yield
        finally:
            if not launched and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for value, read, write in before:
                if read() != value:
                    write(value)
            random.setstate(numbers)
            np.random.set_state(numpy_numbers)


def _write_environment(before: Mapping[str, str]) -> None:
    """Writes the variables that differ, one by one: other threads never find the environment empty."""
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _read_matmul_precision() -> str | None:
    """Returns the precision of matrix products in float32, or None if it was set for single backends, as torch then
    does not return it.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _write_matmul_precision(value: str | None) -> None:
    if value is not None:
        torch.backends.cuda.matmul.fp32_precision = "ieee"  # otherwise torch compares the backends, and raises
        torch.set_float32_matmul_precision(value)


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder was deleted
        return None


def _write_folder(before: str | None) -> None:
    if before is not None:
        os.chdir(before)


def _write_device(before: torch.device) -> None:
    torch.set_default_device(None if before.type == "cpu" else before)  # None also removes torch's context


def _read_signals() -> list[Any]:
    return [signal.getsignal(number) for number in _SIGNALS]


def _write_signals(before: list[Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # which alone may
        for number, handler in zip(_SIGNALS, before, strict=True):
            if handler is not None:  # None: installed by another language
                signal.signal(number, handler)


_STATES: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
    (lambda: dict(os.environ), _write_environment),
    (_read_folder, _write_folder),
    (_read_signals, _write_signals),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, _write_device),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_num_threads, torch.set_num_threads),
    (_read_matmul_precision, _write_matmul_precision),
    *(
        (partial(getattr, torch.backends.cudnn, name), partial(setattr, torch.backends.cudnn, name))
        for name in ("enabled", "benchmark", "deterministic")
    ),
]
