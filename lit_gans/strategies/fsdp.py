"""Networks whose parameters, gradients and optimizer states are cut over the ranks (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from lit_gans.checkpoints.sharded import REST, merge_tensors, read_index, read_rest, split_tensors
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies import contracts
from lit_gans.strategies.base import NetworkStrategy, limit_waiting, replacing
from lit_gans.strategies.module_networks import networks_of, parameters_of


def refused_precision(precision: str) -> str:
    """Returns why there is no training in a precision: also for those that Lightning refuses before us."""
    return (
        f"precision={precision} with strategy=fsdp: ranks could skip different steps, and Lightning shards no float64:"
        " use precision=fp32 or bf16, or strategy=ddp."
    )


class NetworkFSDP(NetworkStrategy, ModelParallelStrategy):
    """FSDP2 on each network of a module with several networks and manual optimization.

    A network's parameters are whole only while it computes. A network through which a gradient penalty is
    differentiated twice stays whole from its forward until an optimizer steps: a module names those in
    `penalised_networks`, and computes the penalty before the network's other outputs.

    Running statistics of batch norm are averaged over the ranks after each training step. Checkpoints are single files
    with whole tensors under the plain names, optimizer states included: they load on one CPU, and training resumes from
    them under any strategy and number of ranks.

    Args:
        wrap: `network` gathers a whole network at once, `layer` each of its layers with parameters by itself, but for
            penalised networks, which stay whole until their step.
        hybrid: cuts within a node and copies over nodes.
        sharded_checkpoints: each rank writes its parts, with torch.distributed.checkpoint: a checkpoint is a folder
            then. They load and resume as files do.
        timeout: seconds that a rank waits for the others.
        process_group_backend: null for nccl on CUDA and gloo elsewhere.

    Raises:
        RefusedInput: a value that cannot work.
    """

    backward_names_network = True
    is_sharded = True  # no rank has a whole network: sampling needs all of them (see `full_state_dict`)

    def __init__(
        self,
        *,
        wrap: Literal["network", "layer"] = "network",
        hybrid: bool = False,
        sharded_checkpoints: bool = False,
        timeout: float = 1800.0,
        process_group_backend: Literal["nccl", "gloo"] | None = None,
    ) -> None:
        if timeout <= 0:
            raise RefusedInput(f"timeout={timeout} must be greater than 0.")
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            timeout=timedelta(seconds=timeout),
        )
        self.wrap, self.hybrid, self.sharded_checkpoints = wrap, hybrid, sharded_checkpoints
        self._networks: dict[str, nn.Module] = {}
        self._penalised: dict[str, nn.Module] = {}
        self._adds_up = False  # gradients are not reduced in the current backward

    # ---- setup and end

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def refuse(self, module: LightningModule, precision: str) -> None:
        if precision not in ("32-true", "bf16-mixed"):
            raise RefusedInput(refused_precision(precision))
        if self._layer_sync is not None:
            raise RefusedInput("sync_batchnorm=True with NetworkFSDP has no effect: use NetworkDDP, or leave it out.")

    def shard_networks(self) -> None:
        module = self.lightning_module
        if type(module).configure_model is LightningModule.configure_model:
            module.configure_model = lambda: None  # Lightning insists on one, where it expects the cutting
        mesh = self._mesh()
        limit_waiting(self._timeout)
        penalised = contracts.penalised_networks(module)
        self._networks = networks_of(module)
        for name, network in self._networks.items():
            network.to(memory_format=torch.contiguous_format)  # FSDP2 cuts no other layout
            layers = [layer for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None]
            # the inner ones first. A penalised network is whole until its step anyway, and its layers, cut by
            # themselves, would be reduced before the penalty's gradients are there
            for layer in reversed(layers) if self.wrap == "layer" and name not in penalised else []:
                if layer is not network:
                    fully_shard(layer, mesh=mesh)
            fully_shard(network, mesh=mesh, reshard_after_forward=name not in penalised)
            if name in penalised:  # double backward needs the whole weights until the step
                network.set_reshard_after_backward(False, recurse=True)
                self._penalised[name] = network
            else:
                sentence = (
                    f"a gradient through {name} is differentiated again, and FSDP would free its weights between: name"
                    f" it in the module, penalised_networks = ({name!r},), and compute the penalty before its other"
                    " outputs."
                )
                self.refuse_penalty(network, sentence)

    def _mesh(self) -> DeviceMesh:
        if not self.hybrid:
            return self.device_mesh["data_parallel"]
        return init_device_mesh(
            self.root_device.type, (self.num_nodes, self.num_processes), mesh_dim_names=("copies", "parts")
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
        if not self._adds_up:
            for name, penalised in self._penalised.items():
                if any(parameter.grad is not None for parameter in penalised.parameters()):  # of the whole weights
                    raise RuntimeError(
                        f"FSDP reduced the gradients of {name} before all were there: compute its gradient penalty"
                        " before its other outputs."
                    )
        return loss

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Any, model: LightningModule | None = None, **kwargs: Any
    ) -> Any:
        # before the step: after it, the next forward would use the old whole weights. Also those that another network's
        # backward passed through: a whole weight does not learn that it is no longer frozen
        for network in self._penalised.values():
            for part in network.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()
        return super().optimizer_step(optimizer, closure, model, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Lets gradients add up on each rank; the next backward outside reduces their sum."""
        for network in self._networks.values():
            network.set_requires_gradient_sync(False)
        self._adds_up = True
        try:
            yield
        finally:
            self._adds_up = False
            for network in self._networks.values():
                network.set_requires_gradient_sync(True)

    # ---- checkpoints: whole tensors under plain names

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return {name: self._saved(value) for name, value in self.lightning_module.state_dict().items()}

    def _saved(self, value: Any) -> Any:
        return value if self.sharded_checkpoints else _whole(value)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = getattr(optimizer, "optimizer", optimizer).state_dict()
        moments = {index: {k: self._saved(v) for k, v in values.items()} for index, values in state["state"].items()}
        return state | {"state": moments}

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the whole tensors of a network, on the CPU; every rank must call it."""
        return {name: _whole(value) for name, value in network.state_dict().items()}

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's part of a parameter."""
        return parameter.to_local()

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's part of a tensor that belongs to a parameter."""
        return distribute_tensor(full, parameter.device_mesh, parameter.placements).to_local().clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns the whole tensor of all ranks' parts; every rank must call it."""
        placed = (parameter.device_mesh, parameter.placements)
        return DTensor.from_local(shard, *placed, shape=parameter.shape, stride=parameter.stride()).full_tensor()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self.sharded_checkpoints:
            return Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)
        rest, tensors = split_tensors(checkpoint)
        with replacing(Path(filepath), self) as folder:
            dcp.save(tensors, checkpoint_id=str(folder))
            if self.is_global_zero:
                torch.save(rest, folder / REST)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(checkpoint_path)
        if not (path.is_dir() and "deepspeed" not in read_rest(path)):
            return Strategy.load_checkpoint(self, checkpoint_path, weights_only)
        own = {f"state_dict/{name}": value for name, value in self.lightning_module.state_dict().items()}
        parameters = [parameters_of(optimizer) for optimizer in self.optimizers]
        tensors = {}
        for name, entry in read_index(path).items():  # each rank reads its parts only
            if name not in own and name.startswith("optimizer_states/"):
                _, number, index, _ = name.split("/")
                own[name] = parameters[int(number)][int(index)]
            same = name in own and own[name].shape == entry.size
            tensors[name] = (
                torch.zeros_like(own[name]) if same else torch.empty(entry.size, dtype=entry.properties.dtype)
            )
        dcp.load(tensors, checkpoint_id=str(path))
        return merge_tensors(read_rest(path), tensors)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        module = self.lightning_module
        own = module.state_dict()
        state = {n: _like(value, own[n]) if n in own else value for n, value in checkpoint["state_dict"].items()}
        module.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = parameters_of(optimizer)
            moments = {
                index: {k: _like(v, parameters[index]) for k, v in values.items()}
                for index, values in state["state"].items()
            }
            optimizer.load_state_dict(state | {"state": moments})


def _whole(value: Any) -> Any:
    """Returns the whole tensor of a part, on the CPU; every rank must call it."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def _like(value: Any, own: Any) -> Any:
    """Returns the part of a whole tensor that this rank has of `own`; other values as they are."""
    if isinstance(value, DTensor) or not (
        isinstance(own, DTensor) and isinstance(value, Tensor) and value.shape == own.shape
    ):
        return value
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
