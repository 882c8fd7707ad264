"""Freezing of the networks that a step does not train."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from lit_gans.networks.spectral import OnePowerIteration, SpectralNorm


class TrainingOnly:
    """Context in which only some networks are trained; may be entered again and inside itself.

    What is not frozen of all other networks is frozen, so that no gradients of their weights are computed. Each
    spectral norm runs one power iteration. A class, like `OnePowerIteration`: inside itself it freezes nothing and
    costs next to nothing.

    Args:
        others: parameters of the other networks.
        layers: spectral norms of all networks.
    """

    def __init__(self, others: Iterable[nn.Parameter], layers: Iterable[SpectralNorm]) -> None:
        self._others = list(others)
        self._one_iteration = OnePowerIteration(layers)
        self._frozen: list[nn.Parameter] = []
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._frozen = [parameter for parameter in self._others if parameter.requires_grad]
            for parameter in self._frozen:
                parameter.requires_grad_(False)
        self._depth += 1
        self._one_iteration.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._one_iteration.__exit__(*exception)
        self._depth -= 1
        if self._depth == 0:
            for parameter in self._frozen:
                parameter.requires_grad_(True)
