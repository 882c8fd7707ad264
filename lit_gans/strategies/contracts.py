"""Protocols between a module with several networks and the strategy that trains it.

Each protocol covers one ability and is optional: for a module or strategy that does not implement it, the
corresponding function returns a default. Thus Lightning's own strategies can train our modules, and our strategies can
train modules that are independent of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

# ---- protocols of modules, which strategies use


@runtime_checkable
class PenalisesNetworks(Protocol):
    """A module that differentiates the gradient of some networks twice, as gradient penalties do."""

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        """Names of the networks whose gradient is differentiated twice."""


@runtime_checkable
class LimitsGradients(Protocol):
    """A module whose networks' gradients are clipped before each step."""

    @property
    def clip_gradients_to(self) -> float | None:
        """Maximum norm of a network's gradient; `None` for no limit."""


@runtime_checkable
class NamesBackward(Protocol):
    """A module that reports which network the current backward trains."""

    @property
    def backpropagated_network(self) -> str | None:
        """Name of the network that the current backward trains; `None` outside a backward."""


def penalized_networks(module: object) -> tuple[str, ...]:
    """Returns the networks whose gradient a module differentiates twice; none by default."""
    return tuple(module.penalized_networks) if isinstance(module, PenalisesNetworks) else ()


def clip_gradients_to(module: object) -> float | None:
    """Returns the maximum norm of a network's gradient; `None` (no limit) by default."""
    return module.clip_gradients_to if isinstance(module, LimitsGradients) else None


def backpropagated_network(module: object) -> str | None:
    """Returns the network that the current backward trains; `None` (the network that is not frozen) by default."""
    return module.backpropagated_network if isinstance(module, NamesBackward) else None


# ---- protocols of strategies, which modules use


@runtime_checkable
class NamedBackward(Protocol):
    """A strategy whose `backward` takes the name of the network to train: `manual_backward(loss, network=NAME)`."""

    @property
    def backward_names_network(self) -> bool:
        """Whether `backward` accepts `network=`."""


@runtime_checkable
class ClipsGradients(Protocol):
    """A strategy that clips gradients itself, to the module's `clip_gradients_to`."""

    @property
    def clips_gradients(self) -> bool:
        """Whether the strategy clips, so that the module must not."""


@runtime_checkable
class BlocksSync(Protocol):
    """A strategy that averages gradients over the ranks in each backward, and can defer this to a later one."""

    def block_backward_sync(self) -> AbstractContextManager[None]:
        """Returns a context in which backward accumulates gradients on each rank without synchronization."""


@runtime_checkable
class ShardsNetworks(Protocol):
    """A strategy that may shard parameters over the ranks, so that no rank has a full network."""

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are currently sharded."""

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter."""

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor of a parameter's shape."""

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Gathers the full tensor from all ranks' shards; every rank must call it."""

    def full_state_dict(self, network: nn.Module) -> Mapping[str, Tensor]:
        """Returns a network's full tensors on the CPU; every rank must call it."""


@runtime_checkable
class CountsBytes(Protocol):
    """A strategy that counts the memory that training requires on a rank."""

    def bytes_held(self) -> Mapping[str, int]:
        """Returns this rank's bytes of `parameters`, `gradients` and `optimizer` states."""


def backward_arguments(strategy: object, network: str) -> dict[str, str]:
    """Returns the arguments of `manual_backward` that name a network; by default none."""
    named = isinstance(strategy, NamedBackward) and strategy.backward_names_network
    return {"network": network} if named else {}


def clips_gradients(strategy: object) -> bool:
    """Returns whether a strategy clips gradients itself; by default it does not."""
    return isinstance(strategy, ClipsGradients) and strategy.clips_gradients


def block_backward_sync(strategy: object) -> AbstractContextManager[None]:
    """Returns a context in which backward does not average gradients over the ranks; a null context by default."""
    return strategy.block_backward_sync() if isinstance(strategy, BlocksSync) else nullcontext()


def sharding(strategy: object) -> ShardsNetworks | None:
    """Returns a strategy if it currently shards parameters over the ranks, otherwise `None`."""
    return strategy if isinstance(strategy, ShardsNetworks) and strategy.is_sharded else None


def bytes_held(strategy: object) -> dict[str, int]:
    """Returns this rank's bytes of parameters, gradients and optimizer states; empty by default."""
    return dict(strategy.bytes_held()) if isinstance(strategy, CountsBytes) else {}
