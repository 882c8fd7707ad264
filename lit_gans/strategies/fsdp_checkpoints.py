"""Checkpoints of networks that FSDP sharded: single files with full tensors, or folders of shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lit_gans.checkpoints.sharded import (
    REST,
    TIED,
    merge_tensors,
    read_index,
    read_into,
    read_rest,
    split_tensors,
    verify_shards,
)
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.checkpoint_folders import replacing
from lit_gans.strategies.module_networks import parameters_of


class FSDPCheckpoints(NetworkStrategy):
    """Shards of DTensors and their full tensors, and checkpoints of either."""

    sharded_checkpoints: bool

    # ---- shards of parameters, and full tensors

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the full tensors of a network, on the CPU; every rank must call it."""
        return {name: _full(value) for name, value in network.state_dict().items()}

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter."""
        return parameter.to_local() if isinstance(parameter, DTensor) else parameter

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor of a parameter's shape."""
        if not isinstance(parameter, DTensor):
            return full.clone()
        return distribute_tensor(full, parameter.device_mesh, parameter.placements).to_local().clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Gathers the full tensor from all ranks' shards; every rank must call it."""
        if not isinstance(parameter, DTensor):
            return shard
        placed = (parameter.device_mesh, parameter.placements)
        return DTensor.from_local(shard, *placed, shape=parameter.shape, stride=parameter.stride()).full_tensor()

    # ---- writing

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return {name: self._saved(value) for name, value in self.lightning_module.state_dict().items()}

    def _saved(self, value: Any) -> Any:
        return value if self.sharded_checkpoints else _full(value)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = super().optimizer_state(optimizer)
        moments = {index: {k: self._saved(v) for k, v in values.items()} for index, values in state["state"].items()}
        return state | {"state": moments}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self.sharded_checkpoints:
            return super().save_checkpoint(checkpoint, filepath, storage_options)
        state = checkpoint["state_dict"]  # without tensors that have two names, which safetensors refuses
        tied = {name: first for name, first in _tied(self.lightning_module).items() if {name, first} <= state.keys()}
        single = {name: value for name, value in state.items() if name not in tied}
        rest, tensors = split_tensors(checkpoint | {"state_dict": single, TIED: tied})
        with replacing(Path(filepath), self) as folder:
            dcp.save(tensors, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True))
            if self.is_global_zero:
                torch.save(rest, folder / REST)

    # ---- reading

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(checkpoint_path)
        if not (path.is_dir() and "deepspeed" not in read_rest(path)):
            return super().load_checkpoint(checkpoint_path, weights_only)
        rest = read_rest(path)
        verify_shards(path, rest, self.global_rank, self.world_size)
        own = {f"state_dict/{name}": value for name, value in self.lightning_module.state_dict().items()}
        parameters = [parameters_of(optimizer) for optimizer in self.optimizers]
        tensors = {}
        for name, entry in read_index(path).items():  # each rank reads only its shards
            if name not in own and name.startswith("optimizer_states/"):
                _, number, index, _ = name.split("/")
                own[name] = parameters[int(number)][int(index)]
            same = name in own and own[name].shape == entry.size
            tensors[name] = (
                torch.zeros_like(own[name]) if same else torch.empty(entry.size, dtype=entry.properties.dtype)
            )
        read_into(tensors, path)
        return merge_tensors(rest, tensors)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        module = self.lightning_module
        own = module.state_dict()
        state = {n: sharded_like(value, own[n]) if n in own else value for n, value in checkpoint["state_dict"].items()}
        module.load_state_dict(state, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = parameters_of(optimizer)
            moments = {
                index: {k: sharded_like(v, parameters[index]) for k, v in values.items()}
                for index, values in state["state"].items()
            }
            optimizer.load_state_dict(state | {"state": moments})


def _tied(module: nn.Module) -> dict[str, str]:
    """Returns for each further name of a parameter or buffer its first one."""
    first: dict[int, str] = {}
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name: first[id(tensor)] for name, tensor in named if first.setdefault(id(tensor), name) != name}


def _full(value: Any) -> Any:
    """Returns the full tensor of a shard, on the CPU; every rank must call it."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def sharded_like(value: Any, own: Any) -> Any:
    """Shards a full tensor as `own` is sharded; returns other values unchanged."""
    if isinstance(value, DTensor) or not (
        isinstance(own, DTensor) and isinstance(value, Tensor) and value.shape == own.shape
    ):
        return value
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
