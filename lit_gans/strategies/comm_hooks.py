"""Communication hooks: gradient compression, and hierarchical reduction within nodes and then between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

Compression = Literal["none", "fp16", "bf16", "powersgd"]


@dataclass(frozen=True)
class Nodes:
    """Process groups by node: the group of this rank's node, its first rank, and the group of all first ranks."""

    own: dist.ProcessGroup
    leader: int
    leaders: dist.ProcessGroup

    @classmethod
    def of_size(cls, num_ranks: int) -> Nodes:
        """Creates the groups of nodes with `num_ranks` ranks each; every rank must call it."""
        world = dist.get_world_size()
        nodes = [list(range(first, min(first + num_ranks, world))) for first in range(0, world, num_ranks)]
        own, _ = dist.new_subgroups_by_enumeration(nodes)
        return cls(own, dist.get_global_rank(own, 0), dist.new_group([ranks[0] for ranks in nodes]))


def communicate(
    replica: DistributedDataParallel, compression: Compression, powersgd_rank: int, nodes: Nodes | None
) -> None:
    """Sets how gradients are averaged over all ranks.

    Args:
        replica: wrapped network.
        compression, powersgd_rank: see `NetworkDDP`.
        nodes: groups for hierarchical reduction; `None` reduces over all ranks at once.
    """
    if compression == "powersgd":
        # warm start and error feedback start at the third step, since the buckets are reordered before
        state = powerSGD_hook.PowerSGDState(None, powersgd_rank, start_powerSGD_iter=2)
        replica.register_comm_hook(state, _powersgd)
        return
    if nodes is not None:
        hook = _hierarchical
        if compression != "none":
            wrapper = {"fp16": default_hooks.fp16_compress_wrapper, "bf16": default_hooks.bf16_compress_wrapper}
            hook = wrapper[compression](hook)
        replica.register_comm_hook(nodes, hook)
    elif compression != "none":
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
        replica.register_comm_hook(None, hooks[compression])


def _powersgd(state, bucket):  # not annotated: see `_hierarchical`
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    # A bucket has three all-reduces. Gloo's threads start the last two when the one before has ended, which on another
    # rank may be after the first of the next bucket: the ranks would add up different tensors, or abort.
    future.wait()
    return future


def _hierarchical(nodes, bucket):  # torch refuses annotations that are strings, as here all are
    flat = bucket.buffer().div_(dist.get_world_size())
    dist.reduce(flat, dst=nodes.leader, group=nodes.own)
    if dist.get_rank() == nodes.leader:
        dist.all_reduce(flat, group=nodes.leaders)
    dist.broadcast(flat, src=nodes.leader, group=nodes.own)
    future = torch.futures.Future()
    future.set_result(flat)
    return future
