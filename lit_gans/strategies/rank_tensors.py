"""Tensors of all ranks: broadcast and averaged."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lit_gans.common._compat.torch import NormBase, copy_all


@torch.no_grad()
def broadcast_from_first_rank(module: nn.Module, device: torch.device) -> None:
    """Broadcasts parameters and buffers from rank 0, through a device that the backend supports."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    for tensor in (tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.numel()):
        sent = tensor.detach().flatten().to(device, copy=True)
        dist.broadcast(sent.view(torch.uint8), 0)
        tensor.copy_(sent.view(tensor.shape))


def running_statistics(module: nn.Module, stepped: Iterable[nn.Parameter]) -> list[Tensor]:
    """Returns the running means and variances of the norms that train: those with parameters that an optimizer steps,
    and those without parameters in training mode.
    """
    ids = {id(parameter) for parameter in stepped}
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, NormBase)
        and layer.track_running_stats
        and (layer.training if layer.weight is None else id(layer.weight) in ids)
    ]
    buffers = (buffer for layer in layers for buffer in (layer.running_mean, layer.running_var))
    return [buffer for buffer in buffers if buffer is not None]


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
