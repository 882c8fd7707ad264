"""Restores the global state of a process that training changes: environment, logging, flags, random states, signals."""

from __future__ import annotations

import decimal
import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import matplotlib
import numpy as np
import torch

from lit_gans.common._compat.torch import global_module_hooks, print_options, set_global_module_hooks
from lit_gans.common.noise import forked

_SIGNALS = [number for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", None)) if number]
_LAUNCHED = "LOCAL_RANK"  # environment variable that launchers, and Lightning's own launcher, set


@contextmanager
def process_state_restored() -> Iterator[None]:
    """Context manager that restores the global state of the process when training ends or raises an error.

    The next training run in the same process then gives the same results as in a new process. Lightning sets the flags
    for `deterministic` and `benchmark` and does not reset them. Lightning also sets environment variables for the
    processes that it starts, and would later mistake these variables for the variables of a launcher. Modules and
    callbacks can change further state, such as the default data type. The process group is destroyed, unless a launcher
    started this process.
    """
    # Lightning's `isolate_rng` does not restore the random states if an exception is raised
    numbers, numpy_numbers = random.getstate(), np.random.get_state()
    launched, before = _LAUNCHED in os.environ, [(read(), read, write) for read, write in _STATES]
    with _contexts_kept(), forked():
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


@contextmanager
def _contexts_kept() -> Iterator[None]:
    """Context manager that restores the state for which Python and the libraries provide context managers."""
    with warnings.catch_warnings(), matplotlib.rc_context(), np.errstate(), np.printoptions(), decimal.localcontext():
        yield


def _write_environment(before: Mapping[str, str]) -> None:
    """Restores only the variables that differ, so that other threads never see an empty environment."""
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _read_precision(read: Callable[[], Any]) -> Any:
    """Returns a precision setting of torch, or None if backends differ, because torch then raises an error."""
    try:
        return read()
    except RuntimeError:
        return None


def _write_matmul_precision(value: str | None) -> None:
    if value is not None:
        torch.backends.cuda.matmul.fp32_precision = "ieee"  # otherwise, torch raises an error if the backends differ
        torch.set_float32_matmul_precision(value)


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder was deleted
        return None


def _write_folder(before: str | None) -> None:
    if before is not None:
        os.chdir(before)


def _read_device() -> torch.device:
    return torch.empty(0).device


def _write_device(before: torch.device) -> None:
    if _read_device() != before:
        # not `set_default_device(None)`: Lightning calls `get_default_device`, which then raises an error in torch 2.9
        torch.set_default_device(before)


def _read_signals() -> list[Any]:
    return [signal.getsignal(number) for number in _SIGNALS]


def _write_signals(before: list[Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # only the main thread can set signal handlers
        for number, handler in zip(_SIGNALS, before, strict=True):
            if handler is not None:  # None if the handler was not installed from Python
                signal.signal(number, handler)


def _loggers() -> list[logging.Logger]:
    known = [item for item in logging.root.manager.loggerDict.values() if isinstance(item, logging.Logger)]
    return [logging.root, *known]


def _read_logging() -> dict[logging.Logger, Any]:
    return {log: (log.level, log.propagate, log.disabled, [*log.handlers], [*log.filters]) for log in _loggers()}


def _write_logging(before: dict[logging.Logger, Any]) -> None:
    for log, (level, propagate, disabled, handlers, filters) in before.items():  # new loggers are left unchanged
        log.setLevel(level)
        log.propagate, log.disabled, log.handlers[:], log.filters[:] = propagate, disabled, handlers, filters


def _read_umask() -> int:
    # the umask can only be read by setting it; files that other threads create in between are private
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_path(before: list[str]) -> None:
    sys.path[:] = before


def _write_collector(before: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if before[0] else gc.disable)()
    gc.set_threshold(*before[1])


def _figures() -> list[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [] if pyplot is None else pyplot.get_fignums()


def _close_figures(before: list[int]) -> None:
    for number in set(_figures()) - set(before):
        sys.modules["matplotlib.pyplot"].close(number)


def _flushes_denormal() -> bool:
    """Returns whether the CPU flushes denormal numbers to 0. torch can set this mode, but cannot return it."""
    small = torch.full((), 1e-20, dtype=torch.float32, device="cpu")
    return (small * small * 1e20).item() == 0


def _write_cudnn_tf32(value: bool | None) -> None:
    if value is not None:
        torch.backends.cudnn.allow_tf32 = value


def _attribute(thing: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return partial(getattr, thing, name), partial(setattr, thing, name)


_STATES: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
    (lambda: dict(os.environ), _write_environment),
    (_read_folder, _write_folder),
    (_read_signals, _write_signals),
    (torch.get_default_dtype, torch.set_default_dtype),
    (_read_device, _write_device),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_num_threads, torch.set_num_threads),
    (partial(_read_precision, torch.get_float32_matmul_precision), _write_matmul_precision),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "benchmark_limit", "deterministic")),
    (partial(_read_precision, lambda: torch.backends.cudnn.allow_tf32), _write_cudnn_tf32),
    *(_attribute(torch.backends.mkldnn, name) for name in ("enabled", "deterministic")),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    *((partial(torch.get_autocast_dtype, on), partial(torch.set_autocast_dtype, on)) for on in ("cpu", "cuda")),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    (_flushes_denormal, torch.set_flush_denormal),
    (global_module_hooks, set_global_module_hooks),
    (print_options, lambda before: torch.set_printoptions(**before)),
    (_read_logging, _write_logging),
    (lambda: logging.root.manager.disable, logging.disable),
    (lambda: [*sys.path], _write_path),
    _attribute(sys, "excepthook"),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (_read_umask, os.umask),
    (lambda: (gc.isenabled(), gc.get_threshold()), _write_collector),
    (_figures, _close_figures),
]
