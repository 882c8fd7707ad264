"""Clocks, counters, devices and trainers that the benchmarks share."""

from __future__ import annotations

import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import Trainer

from lit_gans.common._compat.torch import TorchDispatchMode
from lit_gans.common.errors import RefusedInput

MEBIBYTE = 2**20
_PRODUCTS = 10


def refuse_gans(gans: Sequence[str], known: Collection[str]) -> None:
    """Raises `RefusedInput` if a benchmark does not know one of the GANs, or if none is given."""
    if not gans or not {*gans} <= {*known}:
        raise RefusedInput(f"gans={list(gans)}: choose from {', '.join(known)}.")


def quiet_trainer(accelerator: str, **settings: Any) -> Trainer:
    """Returns a trainer that neither prints nor writes files, unless `settings` say otherwise."""
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options: dict[str, Any] = {**silent, "enable_model_summary": False, "use_distributed_sampler": False, **settings}
    return Trainer(accelerator=accelerator, **options)


def now(device: torch.device) -> float:
    """Returns the time in seconds once the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median and the quartiles."""
    if len(values) < 2:
        return dict.fromkeys(("median", "lower_quartile", "upper_quartile"), values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower_quartile": lower, "upper_quartile": upper}


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """Returns a 95 % confidence interval of the median of the distribution that independent values come from.

    Its ends are two of the values, the smallest and largest of up to 10. Their ranks follow from the normal
    approximation of the binomial distribution, whatever the distribution of the values.
    """
    ordered = sorted(values)
    rank = max(0, math.floor((len(ordered) - 1.96 * math.sqrt(len(ordered))) / 2) - 1)
    return ordered[rank], ordered[-1 - rank]


class _Operations(TorchDispatchMode):
    """Counts operations as torch's `FlopCounterMode`, whose hooks in modules do not allow gradient penalties."""

    def __init__(self, registry: Mapping[Any, Callable[..., int]]) -> None:
        super().__init__()
        self.registry, self.total = registry, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = self.registry.get(func.overloadpacket)
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


def count_flops(work: Callable[[], Any]) -> int:
    """Runs `work` once and returns the number of floating-point operations of its convolutions and matrix products,
    those of gradient penalties included.
    """
    from torch.utils.flop_counter import flop_registry  # not at the top: it imports slowly

    with _Operations(flop_registry) as counter:
        work()
    return counter.total


def matrix_product_rate(device: torch.device, dtype: torch.dtype, size: int, at_most: float = 2.0) -> float:
    """Returns the floating-point operations per second of the fastest of several products of square matrices.

    Args:
        device: device to compute on.
        dtype: data type of the matrices.
        size: height and width of the matrices.
        at_most: seconds after which no further product starts; the first product is slower than the others.
    """
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times: list[float] = []
    while len(times) < _PRODUCTS and sum(times) < at_most:
        start = now(device)
        torch.matmul(left, right)
        times.append(now(device) - start)
    return 2 * size**3 / min(times)


def peak_process_memory() -> int | None:
    """Returns the peak main memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def environment(device: torch.device) -> dict[str, Any]:
    """Returns properties that timings depend on besides the code: device, number of threads and versions."""
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
