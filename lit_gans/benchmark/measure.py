"""Clocks, counts and rates that benchmarks share."""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning
import torch

MEBIBYTE = 2**20
_PRODUCTS = 10


def now(device: torch.device) -> float:
    """Returns the time in seconds once the device has done everything that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median and the quartiles."""
    if len(values) < 2:
        return dict.fromkeys(("median", "lower_quartile", "upper_quartile"), values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower_quartile": lower, "upper_quartile": upper}


def count_flops(work: Callable[[], Any]) -> int:
    """Returns the floating-point operations of the convolutions and matrix products in `work`, which is run once."""
    from torch.utils.flop_counter import FlopCounterMode  # not at the top: every command imports this module

    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def matrix_product_rate(device: torch.device, dtype: torch.dtype, size: int, at_most: float = 2.0) -> float:
    """Returns the floating-point operations a second of the fastest of some products of square matrices.

    Args:
        device: where to compute.
        dtype: of the matrices.
        size: their height and width.
        at_most: seconds after which no further product begins; the first is slower than the others.
    """
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times: list[float] = []
    while len(times) < _PRODUCTS and sum(times) < at_most:
        start = now(device)
        torch.matmul(left, right)
        times.append(now(device) - start)
    return 2 * size**3 / min(times)


def peak_process_memory() -> int | None:
    """Returns the most bytes that this process ever held in main memory, or `None` where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def environment(device: torch.device) -> dict[str, Any]:
    """Returns what a timing depends on beside the code: the device, the threads and the versions."""
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor_name(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
    }


def _processor_name() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
