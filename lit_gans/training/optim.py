"""Optimizers and learning-rate schedules as small, picklable and exportable dataclasses, with one base class each.

A base class rather than a union: jsonargparse distinguishes its subclasses by their class path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lit_gans.common.errors import RefusedInput


class Schedule:
    """Base class of learning-rate schedules over generator iterations."""

    needs_total = True

    def factor(self, iteration: int, total: int) -> float:
        """Returns the factor in [0, 1] of the learning rate at `iteration` of `total` generator iterations."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule):
    """Keeps the learning rate constant."""

    needs_total = False

    def factor(self, iteration: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True)
class ConstantThenLinear(Schedule):
    """Keeps the learning rate constant at first, then decays it linearly to zero (Isola et al. 2017, section 3.3).

    Args:
        constant_share: fraction of the generator iterations, in [0, 1), before the decay begins.
    """

    constant_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.constant_share < 1:
            raise RefusedInput(f"constant_share={self.constant_share} must lie in [0, 1).")

    def factor(self, iteration: int, total: int) -> float:
        start = self.constant_share * total
        return min(1.0, max(0.0, (total - iteration) / (total - start)))


@dataclass(frozen=True)
class Linear(Schedule):
    """Decays the learning rate linearly to zero at the last iteration (SNGAN: Miyato et al. 2018; WGAN-GP)."""

    def factor(self, iteration: int, total: int) -> float:
        return ConstantThenLinear(constant_share=0.0).factor(iteration, total)


_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "learning_rate": (lambda value: 0 < value <= 1000, "must be greater than 0 and at most 1000"),
    "betas": (lambda values: all(0 <= value < 1 for value in values), "must each lie in [0, 1)"),
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
        betas: decay rates of the running averages of the gradient and its square.
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


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); each GAN's learning rate and betas are defaults in its signature."""

    learning_rate: float = 2e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            parameters,
            lr=self.learning_rate,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=fused or None,
        )


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    learning_rate: float = 2e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    schedule: Schedule = Constant()

    def build(self, parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters,
            lr=self.learning_rate,
            betas=self.betas,
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
