"""What a module asks of the strategy that trains it, with defaults for Lightning's own strategies.

Our strategies derive from `NetworkStrategy`, whose docstring says what they in turn ask of a module. Thus Lightning's
own strategies can train our modules, and our strategies can train modules that are independent of this project.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from lightning.pytorch.strategies import ParallelStrategy, Strategy

from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.grad_scaling import NetworkScaling


def backward_arguments(strategy: Strategy, network: str) -> dict[str, str]:
    """Returns the arguments of `manual_backward` that name a network, where something uses them."""
    named = isinstance(strategy, NetworkStrategy) or isinstance(strategy.precision_plugin, NetworkScaling)
    return {"network": network} if named else {}


def clips_gradients(strategy: Strategy) -> bool:
    """Returns whether a strategy clips gradients itself, to the module's `clip_gradients_to`."""
    return isinstance(strategy, NetworkStrategy) and strategy.clips_gradients


def block_backward_sync(strategy: Strategy) -> AbstractContextManager[None]:
    """Returns a context in which backward accumulates gradients on each rank without averaging them."""
    return strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) else nullcontext()


def sharding(strategy: object) -> NetworkStrategy | None:
    """Returns a strategy if it currently shards parameters over the ranks, so that no rank has a full network."""
    return strategy if isinstance(strategy, NetworkStrategy) and strategy.is_sharded else None
