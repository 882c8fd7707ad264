"""Where the time of a training step goes: operators by kind, and convolutions by the shapes of their layers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any

from torch import Tensor

from lit_gans.common._compat.torch import TorchDispatchMode

_KINDS = {  # patterns of operators' names
    "convolutions": ("convolution",),
    "their gradients": ("convolution_backward",),
    "resampling": ("upsample_*", "avg_pool2d*"),
    "batch norm": ("*native_batch_norm*",),
    "ReLU": ("relu", "threshold_backward"),
    "dense, spectral norm": ("mm", "addmm", "mv", "dot", "linalg_vector_norm"),
    "fused optimizer": ("_fused_*",),
}
KINDS = (*_KINDS, "other")


def kind_of_operator(name: str) -> str:
    """Returns which of `KINDS` an operator of torch is, such as `convolution_backward`."""
    kinds = (kind for kind, patterns in _KINDS.items() if any(fnmatch(name, pattern) for pattern in patterns))
    return next(kinds, "other")


class OperatorTimes(TorchDispatchMode):
    """Measures every operator that runs inside, in seconds of this thread on a processor.

    Attributes:
        by_kind: seconds by kind.
        by_layer: calls, seconds and floating-point operations of convolutions, by gradient or not and by shapes.
    """

    def __init__(self, registry: Mapping[Any, Callable[..., int]]) -> None:
        super().__init__()
        self._registry = registry
        self.by_kind: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.by_layer: dict[str, dict[str, float]] = defaultdict(
            lambda: dict.fromkeys(("calls", "seconds", "flops"), 0)
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time()
        result = func(*args, **(kwargs or {}))
        seconds = time.thread_time() - start
        name = func.overloadpacket.__name__
        self.by_kind[kind_of_operator(name)] += seconds
        if name in ("convolution", "convolution_backward"):
            features, weight = args[1:3] if name == "convolution_backward" else args[:2]
            row = self.by_layer[_label(name, features, weight)]
            row["calls"] += 1
            row["seconds"] += seconds
            row["flops"] += self._registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result


def _label(name: str, features: Tensor, weight: Tensor) -> str:
    sizes = ["x".join(map(str, shape)) for shape in (features.shape[1:], weight.shape)]
    return f"{'gradient of ' if name.endswith('backward') else ''}{sizes[0]} by {sizes[1]}"


def operator_times(work: Callable[[], Any], num: int = 10) -> dict[str, Any]:
    """Runs `work` once; returns seconds of its operators by kind, and of the `num` slowest convolutions by layer."""
    from torch.utils.flop_counter import flop_registry  # not at the top: it imports slowly

    with OperatorTimes(flop_registry) as times:
        work()
    layers = sorted(times.by_layer.items(), key=lambda row: -row[1]["seconds"])
    return {"by_kind": times.by_kind, "by_layer": {label: dict(row) for label, row in layers[:num]}}
