"""Copies of the generator that samples, metrics and checkpoints use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

Weights = Literal["ema", "raw"]


@dataclass
class GeneratorCopies:
    """Copies of the generator outside the module tree, with no trainable parameters and no state-dict keys.

    Attributes:
        averaged: generator with the moving average of the weights.
        full: generator with the trained weights, gathered if a strategy shards the networks over the ranks.
    """

    averaged: nn.Module | None = None
    full: nn.Module | None = None
