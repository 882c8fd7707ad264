"""Detection of trainings that have diverged: losses, penalties, weights and gradient scales that are not finite."""

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
_SMALLEST_SCALE = 2.0**-24  # the smallest positive number of fp16: gradients overflow in spite of it


class _Reading(NamedTuple):
    """Values of an iteration on their way to the host."""

    iteration: int
    names: list[tuple[str, str]]  # what, and of which network
    values: Tensor
    copied: torch.cuda.Event | None  # recorded behind the copy to pinned memory


class FiniteCheck:
    """Raises `FloatingPointError` in the first iteration with a value that is not finite.

    The error names the network and the first such value in the order of computation. On the CPU, an iteration's values
    are read at its end. On CUDA they are copied to the host without waiting, and read at the end of the next iteration,
    so that the device always has an iteration of work queued; `raise_if_diverged` reads them at once, before anything
    is written.

    Args:
        networks: names of the networks in the order of their steps.
        late: whether values are read one iteration late; None: on CUDA.
    """

    def __init__(self, networks: Sequence[str], late: bool | None = None) -> None:
        self.networks, self.late = networks, late
        self.start({})

    def start(self, weights: Mapping[str, Sequence[Tensor]]) -> None:
        """Begins a training with the weights of each network, or this rank's shards of them, and checks them."""
        self._weights = {name: [tensor.detach() for tensor in weights.get(name, ())] for name in self.networks}
        self._terms: dict[str, list[tuple[str, Tensor]]] = {name: [] for name in self.networks}
        self._pending: _Reading | None = None

    def add(self, what: str, network: str, value: Tensor) -> None:
        """Adds a scalar to the values of the current iteration."""
        value = value.detach()
        self._terms[network].append((what, value.reshape(()) if value.dim() else value))

    def end_iteration(self, iteration: int) -> None:
        """Reads the values of this iteration (CPU) or the one before (CUDA).

        Args:
            iteration: number of the iteration, counted from 1; 0 before the first.

        Raises:
            FloatingPointError: a value is not finite.
        """
        earlier, self._pending = self._pending, self._read(iteration)
        _raise_if_broken(earlier)
        late = self._pending.copied is not None if self.late is None else self.late
        if not late:
            self.raise_if_diverged()

    def raise_if_diverged(self) -> None:
        """Reads the values of the last iteration; to be called before anything is written.

        Raises:
            FloatingPointError: a value is not finite.
        """
        pending, self._pending = self._pending, None
        _raise_if_broken(pending)

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


def _raise_if_broken(reading: _Reading | None) -> None:
    if reading is None:
        return
    if reading.copied is not None:
        reading.copied.synchronize()  # for this copy only, not for what was queued after it
    for (what, network), value in zip(reading.names, reading.values.tolist(), strict=True):
        if not math.isfinite(value) or (what == SCALE and value < _SMALLEST_SCALE):
            raise FloatingPointError(_sentence(what, network, value, reading.iteration))


def _sentence(what: str, network: str, value: float, iteration: int) -> str:
    found = f"is {value}" if what == SCALE else "are not finite" if what == WEIGHTS else "is not finite"
    return (
        f"the {what} of the {network} {found} since iteration {iteration}: the training has diverged. Resume from the"
        " last checkpoint with a smaller learning rate, clip_gradients or precision=fp32."
    )
