"""The networks of a module, as the strategies see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from lit_gans.common._compat.torch import NormBase, copy_all, tree_leaves
from lit_gans.common.errors import RefusedInput

# ---- networks and their optimizers


def networks_of(module: LightningModule) -> dict[str, nn.Module]:
    """Returns the children of a module that have trainable parameters, by name.

    Raises:
        RefusedInput: a trainable parameter belongs to no child, so that no wrapper would reduce its gradient, or to two
            children, so that both would.
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
                raise RefusedInput(
                    f"the networks {other} and {name} share a parameter: give each network its own parameters."
                )
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in home:
            raise RefusedInput(f"the parameter {name} belongs to no network: move it into a child module.")
    return networks


def network_of(optimizer: torch.optim.Optimizer, module: LightningModule) -> str:
    """Returns the name of the network that an optimizer steps.

    Raises:
        RefusedInput: the optimizer has parameters of several children, or of none.
    """
    stepped = {id(parameter) for parameter in parameters_of(optimizer)}
    found = [
        name for name, child in module.named_children() if stepped & {id(parameter) for parameter in child.parameters()}
    ]
    if len(found) != 1:
        raise RefusedInput(f"an optimizer steps the networks {found}: give each network an optimizer of its own.")
    return found[0]


def optimized_networks(optimizers: Iterable[torch.optim.Optimizer], module: LightningModule) -> dict[int, str]:
    """Returns the network that each optimizer steps, by the optimizer's id.

    Raises:
        RefusedInput: an optimizer steps several networks, none, or a network that another optimizer steps too.
    """
    names: dict[int, str] = {}
    for optimizer in optimizers:
        name = network_of(optimizer, module)
        if name in names.values():
            raise RefusedInput(f"two optimizers step {name}: give it one, with a parameter group for each setting.")
        names[id(optimizer)] = name
    return names


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Returns the parameters of an optimizer, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


# ---- refusals


def refuse_frozen(optimizers: Iterable[torch.optim.Optimizer], module: LightningModule) -> None:
    """Raises `RefusedInput` if an optimizer steps a frozen parameter, whose gradient would never be reduced."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for parameter in (parameter for optimizer in optimizers for parameter in parameters_of(optimizer)):
        if not parameter.requires_grad:
            raise RefusedInput(
                f"an optimizer steps {names.get(id(parameter), 'a parameter outside the module')}, which is frozen"
                " (requires_grad=False) when the training begins, so that its gradients would not be averaged over the"
                " ranks: unfreeze it before the training, or leave it out of the optimizer."
            )


def refuse_second_differentiation(network: nn.Module, sentence: str) -> RemovableHandle:
    """Makes double backward through a network raise `RefusedInput` with a message; returns the hook's handle."""

    def refuse(_: Tensor) -> None:
        if torch.is_grad_enabled():  # in a backward: with create_graph=True
            raise RefusedInput(sentence)

    @torch.compiler.disable
    def after_forward(_: nn.Module, inputs: Any, outputs: Any) -> None:
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(refuse)

    return network.register_forward_hook(after_forward)


# ---- tensors of all ranks


@torch.no_grad()
def broadcast_from_first_rank(module: nn.Module, device: torch.device) -> None:
    """Broadcasts parameters and buffers from rank 0, through a device that the backend supports."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    for tensor in (tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.numel()):
        sent = tensor.detach().flatten().to(device, copy=True)
        dist.broadcast(sent.view(torch.uint8), 0)
        tensor.copy_(sent.view(tensor.shape))


def running_statistics(module: nn.Module) -> list[Tensor]:
    """Returns the running means and variances of all norms with running statistics."""
    layers = [layer for layer in module.modules() if isinstance(layer, NormBase) and layer.track_running_stats]
    return [buffer for layer in layers for buffer in (layer.running_mean, layer.running_var)]


@torch.no_grad()
def average_over_ranks(buffers: list[Tensor]) -> None:
    """Replaces tensors by their means over all ranks, with a single reduction."""
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size == 1 or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    means = flat.div_(world_size).split([buffer.numel() for buffer in buffers])
    copy_all(buffers, (mean.view_as(buffer) for mean, buffer in zip(means, buffers, strict=True)))


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Returns the bytes of the storages of tensors on this rank, by address: shared storages count once."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in local)}
