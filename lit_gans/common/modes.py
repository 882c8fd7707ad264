"""Context managers that freeze parameters, and that set layers to evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Context manager in which no gradients of the parameters are computed.

    Parameters that were already frozen stay frozen on exit.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Context manager that sets every layer to evaluation mode and restores the previous modes on exit."""
    training = [layer for layer in module.modules() if layer.training]
    module.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True
