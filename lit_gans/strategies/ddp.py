"""Strategy that wraps each network in a separate DistributedDataParallel, and the strategy's communication hooks.

The hooks compress gradients, or reduce them within each node first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from lit_gans.common._compat.torch import WITHOUT_BUFFER_SYNC, reduces_all
from lit_gans.common.annotations import converts_arguments
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.lightning import LightningModule, Trainer, prepare_for_backward
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.module_networks import OptimizedNetwork, leaves_of, network_named

Compression = Literal["none", "fp16", "bf16", "powersgd"]


class NetworkDDP(NetworkStrategy):
    """Data parallel training of a module with several networks and manual optimization.

    Lightning's DDP strategy wraps the full module. For GANs, it therefore raises an error or, with
    `find_unused_parameters`, reduces the gradients of every network in every backward pass. This strategy creates one
    DistributedDataParallel wrapper for each optimizer, which holds the parameters that the optimizer steps, wherever
    they are in the module. The wrapper averages gradients over all ranks only in the backward pass that trains these
    parameters. The networks in the module stay unwrapped, so that forward passes, penalties and state dicts do not
    involve a wrapper.

    A backward pass trains all networks that require gradients and that the loss depends on. To train only one network,
    freeze the other networks (as `toggle_optimizer` does), or name the network:
    `manual_backward(loss, network="generator")`. The backward pass must reach all of the network's parameters, unless
    `find_unused_parameters` is set.

    Running statistics of batch norm are averaged over the ranks after each training step, so that all ranks, samples
    and checkpoints agree. During training, each rank normalizes a batch with the statistics of its local batch, unless
    `sync_batchnorm` is set.

    Args:
        bucket_cap_mb: size of the gradient buckets in MiB.
        find_unused_parameters: whether a backward pass is allowed to reach only some parameters of a network that it
            trains.
        gradient_as_bucket_view: whether gradients are views of the buckets, which avoids a second copy of the
            gradients.
        gradient_compression: `none`, `fp16`, `bf16`, or `powersgd`, a low-rank approximation with error feedback
            (Vogels et al. 2019). The error feedback is reset in a resumed run.
        powersgd_rank: rank of the low-rank approximation.
        hierarchical: whether to reduce gradients within each node first, then between the first ranks of the nodes.
        sync_batchnorm: whether batch norm uses the statistics of the batches of all ranks. CUDA only.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: backend of torch.distributed; null uses nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a setting is invalid.
    """

    @converts_arguments
    def __init__(
        self,
        *,
        bucket_cap_mb: float = 25.0,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = True,
        gradient_compression: Compression = "none",
        powersgd_rank: int = 2,
        hierarchical: bool = False,
        sync_batchnorm: bool = False,
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        refuse_below(1, powersgd_rank=powersgd_rank)  # with rank 0, torch would silently set all gradients to 0
        if hierarchical and gradient_compression == "powersgd":
            raise RefusedInput(
                'hierarchical=True does not work with gradient_compression="powersgd": use "none", "fp16" or "bf16".'
            )
        super().__init__(timeout=timeout, process_group_backend=process_group_backend)
        self.bucket_cap_mb, self.hierarchical, self.sync_batchnorm = bucket_cap_mb, hierarchical, sync_batchnorm
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.gradient_compression, self.powersgd_rank = gradient_compression, powersgd_rank
        self.replicas: dict[str, DistributedDataParallel] = {}

    # ---- setup and end

    def refuse(self, module: LightningModule, precision: str) -> None:
        if self.gradient_compression == "powersgd" and precision == "16-mixed":
            raise RefusedInput(
                'gradient_compression="powersgd" does not work with Trainer(precision="16-mixed"), because its error'
                ' feedback would retain the first overflow permanently: use precision="bf16-mixed", or'
                ' gradient_compression="fp16".'
            )

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        if self.sync_batchnorm:
            for network in self.networks.values():
                for path, root in network.roots.items():  # replaces layers, but keeps their parameters
                    self.lightning_module.set_submodule(path, nn.SyncBatchNorm.convert_sync_batchnorm(root))
        node_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.num_processes))
        nodes = Nodes.of_size(node_size) if self.hierarchical else None
        for name, network in self.networks.items():
            replica = DistributedDataParallel(
                nn.ParameterList(network.parameters),
                device_ids=self.determine_ddp_device_ids(),
                **WITHOUT_BUFFER_SYNC,
                find_unused_parameters=self.find_unused_parameters,
                gradient_as_bucket_view=self.gradient_as_bucket_view,
                bucket_cap_mb=self.bucket_cap_mb,
            )
            communicate(replica, self.gradient_compression, self.powersgd_rank, nodes)
            self.replicas[name] = replica
        self.limit_waiting()

    def teardown(self) -> None:
        self.replicas.clear()
        super().teardown()

    # ---- a step

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        named = None if network is None else network_named(self.networks, network)
        trained = [named] if named else [candidate for candidate in self.networks.values() if candidate.trains]
        if named and any(other.trains for other in self.networks.values() if other is not named):
            kwargs["inputs"] = [parameter for parameter in named.parameters if parameter.requires_grad]
        if isinstance(self.precision_plugin, NetworkScaling):
            kwargs["network"] = network
        reached = trained
        # DDP would add the gradients of different networks if the ranks reach different ones
        if self.averages and len(trained) > 1:
            leaves = leaves_of(closure_loss)
            reached = [candidate for candidate in trained if candidate.is_reached(leaves)]
        with self.backward_of(trained, reached):
            self.prepare(trained, closure_loss)
            loss = super().backward(closure_loss, optimizer, *args, **kwargs)
            for name, replica in self.replicas.items():
                if not reduces_all(replica):
                    raise RefusedInput(
                        f"a backward pass reached only some of the parameters of {name} that require gradients, so that"
                        " DDP averages no gradients: use NetworkDDP(find_unused_parameters=True)."
                    )
        return loss

    def prepare(self, trained: list[OptimizedNetwork], loss: Tensor) -> None:
        """Prepares the networks' DDP wrappers to reduce gradients in the backward pass of a loss.

        The wrappers are prepared before each backward pass rather than in `forward`, because a wrapper reduces
        gradients only once per preparation. Inside `block_backward_sync`, the wrappers are not prepared.
        """
        for network in trained:
            prepare_for_backward(self.replicas[network.name], loss)

    def post_backward(self, closure_loss: Tensor) -> None:
        """Does nothing, because no DDP wrapper uses a static graph."""

    def set_averaging(self, averages: bool) -> None:
        super().set_averaging(averages)
        for replica in self.replicas.values():
            replica.require_backward_grad_sync = averages


# ---- communication hooks


@dataclass(frozen=True)
class Nodes:
    """Process groups for a hierarchical reduction.

    Attributes:
        own: group of the ranks on this rank's node.
        leader: global rank of the first rank on this node.
        leaders: group of the first ranks of all nodes.
    """

    own: dist.ProcessGroup
    leader: int
    leaders: dist.ProcessGroup

    @classmethod
    def of_size(cls, num_ranks: int) -> Nodes:
        """Creates the groups of nodes with `num_ranks` ranks each. Every rank must call this method."""
        world = dist.get_world_size()
        nodes = [list(range(first, min(first + num_ranks, world))) for first in range(0, world, num_ranks)]
        own, _ = dist.new_subgroups_by_enumeration(nodes)
        return cls(own, dist.get_global_rank(own, 0), dist.new_group([ranks[0] for ranks in nodes]))


def communicate(
    replica: DistributedDataParallel, compression: Compression, powersgd_rank: int, nodes: Nodes | None
) -> None:
    """Registers the communication hook that averages gradients over all ranks.

    Args:
        replica: wrapped network.
        compression, powersgd_rank: see `NetworkDDP`.
        nodes: groups for hierarchical reduction; `None` reduces over all ranks at once.
    """
    if compression == "powersgd":
        # Warm start and error feedback begin at the third step, because DDP reorders its buckets before that step.
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


def _powersgd(state, bucket):  # has no annotations for the same reason as `_hierarchical`
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    # PowerSGD runs three all-reduces for each bucket. Gloo's threads start the second and the third when the previous
    # all-reduce has ended. Without waiting, another rank might already have started the first all-reduce of the next
    # bucket. The ranks would then add up different tensors, or abort.
    future.wait()
    return future


def _hierarchical(nodes, bucket):  # torch rejects string annotations, which this file has because of `__future__`
    flat = bucket.buffer().div_(dist.get_world_size())
    dist.reduce(flat, dst=nodes.leader, group=nodes.own)
    if dist.get_rank() == nodes.leader:
        dist.all_reduce(flat, group=nodes.leaders)
    dist.broadcast(flat, src=nodes.leader, group=nodes.own)
    future = torch.futures.Future()
    future.set_result(flat)
    return future
