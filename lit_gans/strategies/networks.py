"""The networks of a module, as the strategies see them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from lit_gans.errors import RefusedInput


def networks_of(module: LightningModule) -> dict[str, nn.Module]:
    """Returns the children of a module that have parameters to train, by name.

    Raises:
        RefusedInput: a parameter to train lies outside the children or in two of them: no wrapper would reduce its
            gradient, or two would.
    """
    networks = {
        name: child
        for name, child in module.named_children()
        if any(parameter.requires_grad for parameter in child.parameters())
    }
    home: dict[int, str] = {}
    for name, network in networks.items():
        for parameter in network.parameters():
            other = home.setdefault(id(parameter), name)
            if other != name:
                raise RefusedInput(f"the networks {other} and {name} share a parameter: each must have its own.")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in home:
            raise RefusedInput(f"the parameter {name} lies outside every network: move it into a child module.")
    return networks


def network_of(optimizer: torch.optim.Optimizer, module: LightningModule) -> str:
    """Returns the name of the network that an optimizer steps.

    Raises:
        RefusedInput: the optimizer has parameters of no child, or of several.
    """
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    found = [
        name for name, child in module.named_children() if stepped & {id(parameter) for parameter in child.parameters()}
    ]
    if len(found) != 1:
        raise RefusedInput(f"an optimizer steps the networks {found}: each network needs an optimizer of its own.")
    return found[0]


def running_statistics(module: nn.Module) -> list[Tensor]:
    """Returns the running means and variances of all batch norms."""
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    return [buffer for layer in layers for buffer in (layer.running_mean, layer.running_var)]


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Returns the memory that tensors keep on this rank, each piece once: bytes by address."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return {piece.data_ptr(): piece.nbytes() for piece in (tensor.untyped_storage() for tensor in local)}


@torch.no_grad()
def average_over_ranks(buffers: list[Tensor]) -> None:
    """Replaces tensors by their means over all ranks, in one reduction."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size == 1 or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    parts = flat.div_(world_size).split([buffer.numel() for buffer in buffers])
    torch._foreach_copy_(buffers, [part.view_as(buffer) for part, buffer in zip(parts, buffers, strict=True)])
