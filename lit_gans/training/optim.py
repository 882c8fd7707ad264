"""Optimizers as small, picklable and exportable dataclasses, with one base class, as those of `schedules.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.training.schedules import Constant, Number, Progress, Schedule, ends, value_at

_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "learning_rate": (lambda value: 0 < value <= 1000, "must be greater than 0 and at most 1000"),
    "betas": (lambda values: all(0 <= end < 1 for value in values for end in ends(value)), "must each lie in [0, 1)"),
    "alpha": (lambda value: 0 <= value < 1, "must lie in [0, 1)"),
    "momentum": (lambda value: 0 <= value < 1, "must lie in [0, 1)"),
    "eps": (lambda value: 0 <= value <= 1, "must lie in [0, 1]"),
    "weight_decay": (lambda value: 0 <= value <= 1000, "must lie in [0, 1000]"),
}


class Optimizer:
    """Settings of an optimizer; `build` creates the `torch.optim.Optimizer` of one network.

    Args:
        learning_rate: initial learning rate, before the schedule.
        weight_decay: weight decay coefficient; 0 disables it.
        betas: decay rates of the running averages of the gradient and its square; each may be a schedule.
        alpha: decay rate of the running average of the squared gradient.
        momentum: momentum factor.
        eps: term added to the denominator for numerical stability.
        schedule: schedule of the learning rate over the iterations.

    Raises:
        RefusedInput: a setting is out of range or not a number.
    """

    learning_rate: float
    schedule: Schedule

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            within, sentence = _RANGES.get(name, (None, ""))
            if within is not None and not within(value):
                raise RefusedInput(f"{name}={value} {sentence}.")

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        """Returns the optimizer of `parameters`; `fused` selects the fused implementation where torch has one."""
        raise NotImplementedError

    def scheduled(self, progress: Progress) -> dict[str, Any]:
        """Returns the options of the parameter groups that change over the training, except the learning rate."""
        return {}


class _WithBetas(Optimizer):
    betas: tuple[Number, Number]

    def scheduled(self, progress: Progress) -> dict[str, Any]:
        if not any(isinstance(beta, Schedule) for beta in self.betas):
            return {}
        return {"betas": self.betas_at(progress)}

    def betas_at(self, progress: Progress) -> tuple[float, float]:
        """Returns the decay rates in an iteration."""
        first, second = self.betas
        return value_at(first, progress), value_at(second, progress)


@dataclass(frozen=True)
class Adam(_WithBetas):
    """Adam (Kingma and Ba 2015); each GAN's learning rate and betas are defaults in its signature."""

    learning_rate: float = 2e-4
    betas: tuple[Number, Number] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            parameters,
            lr=self.learning_rate,
            betas=self.betas_at(Progress()),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=fused or None,
        )


@dataclass(frozen=True)
class AdamW(_WithBetas):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    learning_rate: float = 2e-4
    betas: tuple[Number, Number] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters,
            lr=self.learning_rate,
            betas=self.betas_at(Progress()),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=fused or None,
        )


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop, as in the first Wasserstein GAN (Arjovsky et al. 2017, algorithm 1)."""

    learning_rate: float = 5e-5
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            parameters,
            lr=self.learning_rate,
            alpha=self.alpha,
            eps=self.eps,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
        )


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent; useful in parity tests, where Adam would amplify rounding errors."""

    learning_rate: float = 1e-2
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )


def arrange_as_weights(optimizer: torch.optim.Optimizer) -> None:
    """Gives loaded moments the memory layout of their weights.

    Strategies that shard flat weights store contiguous moments, and weights may be `channels_last`. torch's fused step
    on the CPU reads both in the order of their memory, and would silently pair weights with moments of others.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
