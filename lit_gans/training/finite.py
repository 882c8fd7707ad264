"""Detects diverged training: losses, penalties, weights or gradient scales that are not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from lit_gans.common._compat.torch import norm_all
from lit_gans.common.precision import full_precision

PENALTY, LOSS, WEIGHTS, SCALE = "penalty", "loss", "weights", "gradient scale"
_SMALLEST_SCALE = 2.0**-24  # smallest positive fp16 number; a smaller scale means that gradients overflow at any scale


class _Reading(NamedTuple):
    """Values of an iteration on their way to the host."""

    iteration: int
    names: list[tuple[str, str]]  # kind of each value, such as LOSS, and its network
    values: Tensor
    copied: torch.cuda.Event | None  # marks the end of the copy to pinned memory; None on the CPU


class FiniteCheck:
    """Raises `FloatingPointError` in the first iteration with a value that is not finite.

    The error names the network and the first such value in the order of computation. On the CPU, the values of an
    iteration are read at its end. On CUDA, they are copied to the host asynchronously and read at the end of the next
    iteration. So the device always has one iteration of work queued. `raise_if_diverged` reads the values immediately,
    before anything is written.

    Args:
        networks: names of the networks, in the order of their steps.
        late: whether values are read one iteration late. None reads them late on CUDA only.
    """

    def __init__(self, networks: Sequence[str], late: bool | None = None) -> None:
        self.networks, self.late = networks, late
        self.start({})

    def start(self, weights: Mapping[str, Sequence[Tensor]]) -> None:
        """Starts the checks of a new training run.

        Args:
            weights: weights of each network, or this rank's shards of the weights. The weights are checked in each
                iteration.
        """
        self._weights = {name: [tensor.detach() for tensor in weights.get(name, ())] for name in self.networks}
        self._terms: dict[str, list[tuple[str, Tensor]]] = {name: [] for name in self.networks}
        self._pending: _Reading | None = None

    def add(self, what: str, network: str, value: Tensor) -> None:
        """Adds a scalar to the values to check in the current iteration."""
        value = value.detach()
        self._terms[network].append((what, value.reshape(()) if value.dim() else value))

    def end_iteration(self, iteration: int) -> None:
        """Reads the values of this iteration (CPU) or of the previous iteration (CUDA).

        Args:
            iteration: number of the iteration, counted from 1. It is 0 before the first iteration.

        Raises:
            FloatingPointError: if a value is not finite.
        """
        previous, self._pending = self._pending, self._read(iteration)
        _raise_if_not_finite(previous)
        late = self._pending.copied is not None if self.late is None else self.late
        if not late:
            self.raise_if_diverged()

    def raise_if_diverged(self) -> None:
        """Reads the values of the last iteration. Must be called before anything is written.

        Raises:
            FloatingPointError: if a value is not finite.
        """
        pending, self._pending = self._pending, None
        _raise_if_not_finite(pending)

    def _read(self, iteration: int) -> _Reading:
        weights = [full_precision(tensor) for tensors in self._weights.values() for tensor in tensors]
        norms = iter(norm_all(weights))
        names: list[tuple[str, str]] = []
        values: list[Tensor] = []
        for network, tensors in self._weights.items():
            terms, self._terms[network] = self._terms[network], []
            names += [(what, network) for what, _ in terms] + [(WEIGHTS, network)] * len(tensors)
            values += [*(value for _, value in terms), *islice(norms, len(tensors))]
        stacked = torch.stack(values)
        if stacked.device.type != "cuda":
            return _Reading(iteration, names, stacked, None)
        host, copied = stacked.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return _Reading(iteration, names, host, copied)


def _raise_if_not_finite(reading: _Reading | None) -> None:
    if reading is None:
        return
    if reading.copied is not None:
        reading.copied.synchronize()  # waits for this copy only, and not for work that was queued after the copy
    for (what, network), value in zip(reading.names, reading.values.tolist(), strict=True):
        if not math.isfinite(value) or (what == SCALE and value < _SMALLEST_SCALE):
            raise FloatingPointError(_error_message(what, network, value, reading.iteration))


def _error_message(what: str, network: str, value: float, iteration: int) -> str:
    state = f"is {value}" if what == SCALE else "are not finite" if what == WEIGHTS else "is not finite"
    return (
        f"the {what} of the {network} {state} since iteration {iteration}: the training has diverged. Resume from the"
        " last checkpoint with a smaller learning rate, clip_gradients or precision=fp32."
    )
