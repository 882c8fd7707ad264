"""What sampling needs beside the module: copies of the generator, and its evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Context in which every layer is in evaluation mode; the modes are restored at the end."""
    training = [layer for layer in module.modules() if layer.training]
    module.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True
