"""How a network is sharded: its units, and the exchange of the parameters that its optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.hooks import RemovableHandle

from lit_gans.common.errors import RefusedInput

REDUCES_FROZEN_ALIKE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


def shard_layers(network: nn.Module, **settings: Any) -> None:
    """Shards each layer with parameters separately, the inner ones first, except layers that are tied to others."""
    owners: dict[int, int] = {}
    layers = [layer for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None]
    for parameter in (parameter for layer in layers for parameter in layer.parameters(recurse=False)):
        owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for layer in reversed(layers):
        tied = any(owners[id(parameter)] > 1 for parameter in layer.parameters(recurse=False))
        if layer is not network and not tied and type(layer).forward is not nn.Module.forward:
            fully_shard(layer, **settings)


def precision_policy(param_dtype: str, reduce_dtype: str) -> dict[str, Any]:
    """Returns the arguments of `fully_shard` for the precisions of weights and reductions; none for float32.

    Raises:
        RefusedInput: torch reduces a network whose first forward runs frozen in the precision of its weights.
    """
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if param_dtype == reduce_dtype == "fp32":
        return {}
    if not REDUCES_FROZEN_ALIKE:  # https://github.com/pytorch/pytorch/issues/186998
        raise RefusedInput(
            f"param_dtype={param_dtype} and reduce_dtype={reduce_dtype} need torch 2.15 or newer: older versions"
            " silently reduce a network in the wrong precision if its first forward runs while it is frozen."
        )
    policy = MixedPrecisionPolicy(param_dtype=dtypes[param_dtype], reduce_dtype=dtypes[reduce_dtype])
    return {"mp_policy": policy}


def shard_network(network: nn.Module, reshard_after_forward: bool, penalized: bool, **settings: Any) -> None:
    """Shards a network. A penalized one stays unsharded from its forward to its step, as double backward requires.

    If its layers were sharded separately, they would be reduced before the gradients of the penalty exist.
    """
    sharded = fully_shard(network, **settings, reshard_after_forward=reshard_after_forward and not penalized)
    if penalized:
        sharded.set_reshard_after_backward(False, recurse=True)


def call_before_gather(network: nn.Module, function: Callable[[], None]) -> RemovableHandle:
    """Calls a function before each forward of a sharded network that gathers its weights; returns the hook's handle."""

    @torch.compiler.disable
    def before_forward(module: nn.Module, inputs: Any) -> None:
        if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
            function()

    return network.register_forward_pre_hook(before_forward, prepend=True)


def undeclared_penalty(name: str) -> str:
    """Returns why a gradient penalty is refused on a network that the module does not list in `penalized_networks`."""
    return (
        f"a gradient through {name} is differentiated again, but FSDP frees its weights in between: name it in the"
        f" module, penalized_networks = ({name!r},), and compute the penalty before its other outputs."
    )


def refuse_shared(module: nn.Module, roots: Mapping[str, nn.Module]) -> None:
    """Raises `RefusedInput` if two separately sharded modules share a layer or a parameter.

    Each would have shards of its own, which would be trained apart.
    """
    root_of = {id(inner): path for path, root in roots.items() for inner in root.modules()}
    own = {id(root) for root in roots.values()}
    shared: dict[int, set[str]] = {}
    for path, parent in module.named_modules():
        at = root_of.get(id(parent), path or "the module itself")
        for name, child in parent.named_children():
            if id(child) in root_of and id(child) not in own and root_of[id(child)] != at:
                raise RefusedInput(_shared(f"the layer {path}.{name}".replace(" .", " "), root_of[id(child)], at))
        for name, parameter in parent.named_parameters(recurse=False):
            shared.setdefault(id(parameter), set()).add(at)
            if len(shared[id(parameter)]) > 1 and shared[id(parameter)] & roots.keys():
                raise RefusedInput(
                    _shared(f"the parameter {path}.{name}".replace(" .", " "), *sorted(shared[id(parameter)]))
                )


def _shared(what: str, one: str, other: str) -> str:
    return (
        f"{what} belongs to both {one} and {other}, which FSDP shards separately: put both into one child module, or"
        " use NetworkDDP."
    )


def exchange_parameters(optimizer: torch.optim.Optimizer, sharded: Mapping[int, nn.Parameter]) -> None:
    """Lets an optimizer step sharded parameters, given by the ids of the full ones, with shards of its states."""
    for group in optimizer.param_groups:
        group["params"] = [sharded[id(parameter)] for parameter in group["params"]]
    for full in [*optimizer.state]:
        states = optimizer.state.pop(full)
        new = sharded[id(full)]
        optimizer.state[new] = {key: sharded_like(value, new) for key, value in states.items()}


def sharded_like(value: Any, own: Any) -> Any:
    """Shards a full tensor as `own` is sharded; returns other values unchanged."""
    if isinstance(value, DTensor) or not (
        isinstance(own, DTensor) and isinstance(value, Tensor) and value.shape == own.shape
    ):
        return value
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
