"""Networks whose parameters, gradients and optimizer states are sharded over the ranks (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from lit_gans.common._compat.lightning import (
    accept_without_configure_model,
    set_data_parallel_size,
    synchronises_batch_norm,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import contracts
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.fsdp_checkpoints import FSDPCheckpoints
from lit_gans.strategies.module_networks import networks_of


def refused_precision(precision: str) -> str:
    """Returns why strategy=fsdp does not support a precision, even if Lightning would reject it first."""
    return (
        f"precision={precision} does not work with strategy=fsdp, whose ranks could skip different steps in fp16 and"
        " which Lightning does not support in float64: use precision=fp32 or bf16, or strategy=ddp."
    )


class NetworkFSDP(FSDPCheckpoints, NetworkStrategy, ModelParallelStrategy):
    """Applies FSDP2 to each network of a module with several networks and manual optimization.

    A network's parameters are unsharded only during its computations. A network with a gradient penalty stays unsharded
    from its forward until the optimizer step: the module must list it in `penalised_networks`, and compute the penalty
    before the network's other outputs.

    Running statistics of batch norm are averaged over the ranks after each training step. Checkpoints are single files
    with full tensors under the plain names, optimizer states included: they load on one CPU, and training resumes from
    them under any strategy and number of ranks.

    Args:
        wrap: `network` unshards a full network at once; `layer` unshards each layer with parameters separately, except
            in penalised networks, which stay unsharded until their step.
        hybrid: whether to shard within a node and replicate across nodes.
        sharded_checkpoints: whether each rank writes its shards with torch.distributed.checkpoint, so that a checkpoint
            is a folder. It loads and resumes like a file.
        timeout: seconds that a rank waits for the others, once all have started.
        process_group_backend: backend of torch.distributed; null uses nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a setting is invalid.
    """

    is_sharded = True  # no rank has a full network: sampling needs all of them (see `full_state_dict`)

    def __init__(
        self,
        *,
        wrap: Literal["network", "layer"] = "network",
        hybrid: bool = False,
        sharded_checkpoints: bool = False,
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            timeout=timeout,
        )
        self.wrap, self.hybrid, self.sharded_checkpoints = wrap, hybrid, sharded_checkpoints
        self._networks: dict[str, nn.Module] = {}
        self._penalised: dict[str, nn.Module] = {}
        self._accumulates = False  # whether the current backward skips the reduction

    # ---- setup and end

    def setup_environment(self) -> None:
        set_data_parallel_size(self, self.num_nodes * self.num_processes)
        super().setup_environment()

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(refused_precision(precision))
        if synchronises_batch_norm(self):
            raise RefusedInput("sync_batchnorm=True has no effect with NetworkFSDP: use NetworkDDP, or leave it out.")

    def shard_networks(self) -> None:
        module = self.lightning_module
        accept_without_configure_model(module)
        mesh = self._mesh()
        self.limit_waiting()
        penalised = contracts.penalised_networks(module)
        self._networks = networks_of(module)
        for name, network in self._networks.items():
            network.to(memory_format=torch.contiguous_format)  # FSDP2 shards no other layout
            if name in penalised:
                self._penalised[name] = network
                _shard_penalised(network, mesh)
                continue
            if self.wrap == "layer":
                _shard_layers(network, mesh)
            fully_shard(network, mesh=mesh, reshard_after_forward=True)
            self.refuse_penalty(network, _undeclared_penalty(name))

    def _mesh(self) -> DeviceMesh:
        if not self.hybrid:
            return self.device_mesh["data_parallel"]
        return init_device_mesh(
            self.root_device.type, (self.num_nodes, self.num_processes), mesh_dim_names=("replicas", "shards")
        )

    # ---- a step

    def backward(
        self,
        closure_loss: Tensor,
        optimizer: torch.optim.Optimizer | None,
        *args: Any,
        network: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        self.refuse_unknown(network, self._networks)
        loss = super().backward(closure_loss, optimizer, *args, **kwargs)
        if not self._accumulates:
            for name, penalised in self._penalised.items():
                if any(parameter.grad is not None for parameter in penalised.parameters()):  # of unsharded weights
                    raise RuntimeError(
                        f"FSDP reduced the gradients of {name} before all of them existed: compute its gradient penalty"
                        " before its other outputs."
                    )
        return loss

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Any, model: LightningModule | None = None, **kwargs: Any
    ) -> Any:
        # before the step, since the next forward would otherwise use the old unsharded weights; also if another
        # network's backward passed through, since an unsharded weight stays frozen
        for network in self._penalised.values():
            for layer in network.modules():
                if isinstance(layer, FSDPModule):
                    layer.reshard()
        return super().optimizer_step(optimizer, closure, model, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulates gradients on each rank; the next backward outside the context reduces their sum."""
        for network in self._networks.values():
            network.set_requires_gradient_sync(False)
        self._accumulates = True
        try:
            yield
        finally:
            self._accumulates = False
            for network in self._networks.values():
                network.set_requires_gradient_sync(True)


def _shard_penalised(network: nn.Module, mesh: DeviceMesh) -> None:
    """Shards a network as a unit that stays unsharded from its forward to its step, as double backward requires.

    If layers were sharded separately, they would be reduced before the gradients of the penalty exist.
    """
    fully_shard(network, mesh=mesh, reshard_after_forward=False)
    network.set_reshard_after_backward(False, recurse=True)


def _shard_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    """Shards each layer with parameters separately, the inner ones first."""
    layers = [layer for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None]
    for layer in reversed(layers):
        if layer is not network:
            fully_shard(layer, mesh=mesh)


def _undeclared_penalty(name: str) -> str:
    return (
        f"a gradient through {name} is differentiated again, but FSDP frees its weights in between: name it in the"
        f" module, penalised_networks = ({name!r},), and compute the penalty before its other outputs."
    )
