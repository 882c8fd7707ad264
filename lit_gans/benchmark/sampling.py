"""Where the time of a step goes: a statistical profile, whose samples are the innermost frame with a meaning."""

from __future__ import annotations

import signal
from collections import Counter
from functools import cache
from types import CodeType, FrameType
from typing import Any

_INTERVAL = 1e-3  # seconds; far more than a sample takes

# The first rule that fits the innermost frame counts; if none fits, the next frame outwards is tried.
_IGNORED_FUNCTIONS = {"__setattr__", "__getattr__"}  # of torch's modules, called from anywhere
_IGNORED_FILES = ("lr_scheduler.py", "_contextlib.py")
_RULES = (
    ("noise", "lit_gans/common/noise.py", None),
    ("freezing", "lit_gans/training/optimization.py", {"training_only"}),
    ("freezing", "lit_gans/training/freezing.py", None),
    ("freezing", "lit_gans/networks/spectral.py", {"__enter__", "__exit__"}),
    ("logging", "lightning/pytorch/core/module.py", {"log", "log_dict"}),
    ("logging", "lightning/pytorch/trainer/connectors/logger_connector/", None),
    ("logging", "lit_gans/callbacks/csv_metrics.py", None),
    ("averaging", "lit_gans/callbacks/ema.py", None),
    ("callbacks", "lit_gans/callbacks/", None),
    ("computing", "lit_gans/networks/", None),
    ("computing", "lit_gans/models/", None),
    ("computing", "lit_gans/training/losses.py", None),
    ("computing", "lit_gans/training/penalties.py", None),
    ("computing", "/torch/nn/", None),
    ("computing", "/torch/optim/", None),
    ("computing", "/torch/autograd/", None),
    ("computing", "/torch/_tensor.py", None),
    ("Lightning", "/lightning/", None),
    ("loop", "lit_gans/training/", None),
)
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in _RULES))


def kind_of(frame: FrameType | None) -> str:
    """Returns what a stack is doing, one of `KINDS`, or "other"."""
    while frame is not None:
        kind = _kind_of_function(frame.f_code)
        if kind is not None:
            return kind
        frame = frame.f_back
    return "other"


@cache
def _kind_of_function(code: CodeType) -> str | None:
    if code.co_name in _IGNORED_FUNCTIONS or code.co_filename.endswith(_IGNORED_FILES):
        return None
    for kind, place, functions in _RULES:
        if place in code.co_filename and (functions is None or code.co_name in functions):
            return kind
    return None


class Sampler:
    """Counts what the main thread is doing, by a timer, while it is entered. Needs a system with `setitimer`.

    Attributes:
        counts: number of samples by kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def _sample(self, number: int, frame: FrameType | None) -> None:
        self.counts[kind_of(frame)] += 1

    def __enter__(self) -> Sampler:
        self._before: Any = signal.signal(signal.SIGALRM, self._sample)
        signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def shares(self) -> dict[str, float]:
        """Returns the share of each kind in all samples."""
        total = max(1, sum(self.counts.values()))
        return {kind: self.counts[kind] / total for kind in (*KINDS, "other")}
