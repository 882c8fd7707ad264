"""Networks whose parameters, gradients and optimizer states are sharded over the ranks (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule

from lit_gans.common._compat.lightning import (
    accept_without_configure_model,
    set_data_parallel_size,
    synchronizes_batch_norm,
)
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import contracts
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.binding import Bind
from lit_gans.strategies.fsdp_checkpoints import FSDPCheckpoints
from lit_gans.strategies.fsdp_forwards import ForwardsOnly
from lit_gans.strategies.fsdp_units import (
    call_before_gather,
    exchange_parameters,
    precision_policy,
    refuse_shared,
    shard_layers,
    shard_network,
    undeclared_penalty,
)
from lit_gans.strategies.module_networks import Network, call_in_backward, find_networks, largest_modules, network_named
from lit_gans.strategies.rank_tensors import average_over_ranks


def refused_precision(precision: str) -> str:
    """Returns why strategy=fsdp does not support a precision, even if Lightning would reject it first."""
    return (
        f"precision={precision} does not work with strategy=fsdp, whose ranks could skip different steps in fp16 and"
        " which Lightning does not support in float64: use precision=fp32 or bf16, or strategy=ddp."
    )


class NetworkFSDP(ForwardsOnly, FSDPCheckpoints, NetworkStrategy, ModelParallelStrategy):
    """Applies FSDP2 to each network of a module with several networks and manual optimization.

    A network's parameters are unsharded only during its computations. A network with a gradient penalty stays unsharded
    from its forward until the optimizer step: the module must list it in `penalized_networks`, and compute the penalty
    before the network's other outputs.

    Running statistics of batch norm are averaged over the ranks after each training step. Checkpoints are single files
    with full tensors under the plain names, optimizer states included: they load on one CPU, and training resumes from
    them under any strategy and number of ranks.

    Args:
        wrap: `network` unshards a full network at once; `layer` unshards each layer with parameters separately, except
            in penalized networks, which stay unsharded until their step.
        hybrid: whether to shard within a node and replicate across nodes.
        reshard_after_forward: whether a unit frees its full weights between forward and backward; `False` trades memory
            for communication.
        param_dtype: precision of the weights that a network computes with; the shards that are stepped stay in float32.
        reduce_dtype: precision in which gradients are averaged over the ranks.
        sharded_checkpoints: whether each rank writes its shards with torch.distributed.checkpoint, so that a checkpoint
            is a folder. It loads and resumes like a file.
        bind: `cores` gives each process of a machine cores of its own, and as many threads; Linux only.
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
        reshard_after_forward: bool = True,
        param_dtype: Literal["fp32", "bf16"] = "fp32",
        reduce_dtype: Literal["fp32", "bf16"] = "fp32",
        sharded_checkpoints: bool = False,
        bind: Bind = "none",
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            timeout=timeout,
            bind=bind,
        )
        self.wrap, self.hybrid, self.sharded_checkpoints = wrap, hybrid, sharded_checkpoints
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.reshard_after_forward = reshard_after_forward
        self._roots: dict[str, FSDPModule] = {}
        self._penalized: dict[str, nn.Module] = {}
        self._accumulates = False  # whether the current backward skips the reduction
        self._trained: Network | None = None  # the network that the current backward names

    # ---- setup and end

    def setup_environment(self) -> None:
        set_data_parallel_size(self, self.num_nodes * self.num_processes)
        super().setup_environment()

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(refused_precision(precision))
        if synchronizes_batch_norm(self):
            raise RefusedInput("sync_batchnorm=True has no effect with NetworkFSDP: use NetworkDDP, or leave it out.")
        if self.param_dtype != "fp32" and contracts.penalized_networks(module):
            raise RefusedInput(
                f"param_dtype={self.param_dtype} does not work with a gradient penalty, which is computed in float32:"
                " use precision=bf16, which computes it so, and leave param_dtype out."
            )

    def prepare_networks(self, trainer: Trainer) -> None:
        module = self.lightning_module
        accept_without_configure_model(module)
        mesh = self._mesh()
        self.limit_waiting()
        if trainer.state.fn == TrainerFn.FITTING:  # before sharding, since an optimizer defines a network
            super().setup_optimizers(trainer)
            roots = {path: root for network in self.networks.values() for path, root in network.roots.items()}
        else:
            owned = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
            roots = largest_modules(module, owned)
        self._roots = roots
        full = dict(module.named_parameters())
        self._shard(mesh)
        sharded = dict(module.named_parameters())
        exchanged = {id(parameter): sharded[name] for name, parameter in full.items()}
        for optimizer in self.optimizers:
            exchange_parameters(optimizer, exchanged)
        self.networks = find_networks(self.optimizers, module)
        for network in self.networks.values():
            for path, root in network.roots.items():
                if not self.hybrid:  # whose nodes gather independently of each other
                    self._hooks += (call_before_gather(root, partial(self.positions.note, f"the forward of {path}")),)
                self._hooks += (call_in_backward(root, partial(self._refuse_accumulation, network)),)

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Does nothing, since the optimizers exist since `prepare_networks`."""

    def _shard(self, mesh: DeviceMesh) -> None:
        refuse_shared(self.lightning_module, self._roots)
        penalized = contracts.penalized_networks(self.lightning_module)
        settings = {"mesh": mesh} | precision_policy(self.param_dtype, self.reduce_dtype)
        for path, root in self._roots.items():
            declared = any(f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.") for name in penalized)
            if declared:
                self._penalized[path] = root
            else:
                self.refuse_penalty(root, undeclared_penalty(path))
            if isinstance(root, FSDPModule):  # since an earlier fit of this module
                continue
            root.to(memory_format=torch.contiguous_format)  # FSDP2 shards no other layout
            if self.wrap == "layer" and not declared:
                shard_layers(root, reshard_after_forward=self.reshard_after_forward, **settings)
            shard_network(root, self.reshard_after_forward, declared, **settings)

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
        trained = None if network is None else network_named(self.networks, network)
        if not self._accumulates:
            self.note_backward(*[trained] if trained else [each for each in self.networks.values() if each.trains])
        others = [p for each in self.networks.values() if trained not in (None, each) for p in each.parameters]
        before = [None if parameter.grad is None else parameter.grad.clone() for parameter in others]
        self._trained = trained
        try:
            loss = super().backward(closure_loss, optimizer, *args, **kwargs)
        finally:
            self._trained = None
        for parameter, gradient in zip(others, before, strict=True):  # FSDP has no backward for some leaves only
            parameter.grad = gradient
        if not self._accumulates:
            self._average_loose()
            self._check_penalized()
        return loss

    def _refuse_accumulation(self, network: Network, _: Tensor) -> None:
        """Is called when a backward passes through a network."""
        if self._accumulates and self._trained not in (None, network) and network.trains:
            raise RefusedInput(
                f"a backward of {self._trained.name} inside block_backward_sync reaches {network.name}, which requires"
                " gradients, so that FSDP would add them to its next ones: freeze it before the loss is computed."
            )

    def _average_loose(self) -> None:
        """Averages the gradients of unsharded parameters, to no effect on those that have been averaged before."""
        loose = [parameter for network in self.networks.values() for parameter in network.loose.values()]
        average_over_ranks([p.grad for p in loose if p.requires_grad and p.grad is not None])

    def _check_penalized(self) -> None:
        for name, penalized in self._penalized.items():
            if any(parameter.grad is not None for parameter in penalized.parameters()):  # of unsharded weights
                raise RuntimeError(
                    f"FSDP reduced the gradients of {name} before all of them existed: compute its gradient penalty"
                    " before its other outputs."
                )

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Any, model: LightningModule | None = None, **kwargs: Any
    ) -> Any:
        # before the step, since the next forward would otherwise use the old unsharded weights; also if another
        # network's backward passed through, since an unsharded weight stays frozen
        for layer in (layer for network in self._penalized.values() for layer in network.modules()):
            if isinstance(layer, FSDPModule):
                layer.reshard()
        return super().optimizer_step(optimizer, closure, model, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulates gradients on each rank; the next backward outside the context reduces their sum."""
        for network in self._roots.values():
            network.set_requires_gradient_sync(False)
        self._accumulates = True
        try:
            yield
        finally:
            self._accumulates = False
            for network in self._roots.values():
                network.set_requires_gradient_sync(True)
