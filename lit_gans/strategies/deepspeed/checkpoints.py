"""Checkpoints of networks with DeepSpeed engines: single files with full tensors, or folders in DeepSpeed's format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lit_gans.checkpoints.sharded import REST, TIED, read_rest, verify_shards
from lit_gans.common._compat.deepspeed import zero3_shape, zero3_shard
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.base import NetworkStrategy
from lit_gans.strategies.checkpoint_folders import replacing
from lit_gans.strategies.deepspeed.optimizer import with_padding
from lit_gans.strategies.module_networks import Network, names_of_parameters


class DeepSpeedCheckpoints(NetworkStrategy):
    """Shards of ZeRO stage 3 and their full tensors, and checkpoints of either."""

    sharded_checkpoints: bool
    stage: int
    engines: dict[str, Any]

    # ---- shards of parameters, and full tensors

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter under stage 3: flat, without the padding, which DeepSpeed leaves
        uninitialized.
        """
        padded = zero3_shard(parameter)
        return padded[: max(zero3_shape(parameter).numel() - self.global_rank * padded.numel(), 0)]

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor of a parameter's shape under stage 3."""
        size = zero3_shard(parameter).numel()
        return full.flatten()[self.global_rank * size :][:size].clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns the full tensor of all ranks' shards under stage 3; every rank must call it."""
        own = with_padding(shard, parameter)
        gathered = own.new_empty(own.numel() * self.world_size)
        dist.all_gather_into_tensor(gathered, own.contiguous())
        shape = zero3_shape(parameter)
        return gathered[: shape.numel()].view(shape)

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the full tensors of a module, on the CPU; every rank must call it."""
        state = network.state_dict()
        return {name: value.cpu() for name, value in (state | self._unsharded(network, state)).items()}

    def _unsharded(self, module: nn.Module, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns the full tensors of those parameters in a module's state that are sharded."""
        sharded = {id(parameter) for network in self.networks.values() for parameter in network.parameters}
        full: dict[int, Tensor] = {}  # a tied parameter is gathered once
        names = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) in sharded and name in state:
                if id(parameter) not in full:
                    full[id(parameter)] = self.unshard(self.local_shard(parameter), parameter).cpu()
                names[name] = full[id(parameter)]
        return names

    # ---- writing

    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self.sharded_checkpoints:
            return {}
        state = self.lightning_module.state_dict()
        return state | self._unsharded(self.lightning_module, state) if self.is_sharded else state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {} if self.sharded_checkpoints else super().optimizer_state(optimizer)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self.sharded_checkpoints:
            return super().save_checkpoint(checkpoint, filepath, storage_options)
        networks = {name: _prefixes(network) for name, network in self.networks.items()}
        made_by = {"networks": networks, "stage": self.stage, "ranks": self.world_size} | self._others()
        with replacing(Path(filepath), self) as folder:
            for name, engine in self.engines.items():
                engine.save_checkpoint(str(folder), tag=name, save_latest=False)
            if self.is_global_zero:
                torch.save(checkpoint | {"deepspeed": made_by}, folder / REST)

    def _others(self) -> dict[str, Any]:
        """Returns the tensors outside the engines, and the further names of tensors in them."""
        module = self.lightning_module
        stored = {name for n in self.networks.values() for name in _stored_names(n)}
        names = names_of_parameters(module)
        sharded = {id(parameter) for network in self.networks.values() for parameter in network.parameters}
        tied = {name: next(filter(stored.__contains__, names[key])) for key in sharded for name in names[key]}
        others = {n: v for n, v in module.state_dict().items() if n not in stored and n not in tied}
        return {"others": others, TIED: {name: first for name, first in tied.items() if name != first}}

    # ---- reading

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return self._resumes_from_shards()  # else engines shard the full tensors that the module has loaded

    def _resumes_from_shards(self) -> bool:
        path = self.lightning_module.trainer.ckpt_path
        return path is not None and Path(path).is_dir() and "deepspeed" in read_rest(Path(path))

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        if not self._resumes_from_shards():
            return super().load_checkpoint(checkpoint_path, weights_only)
        rest = read_rest(Path(checkpoint_path))
        made_by, now = rest["deepspeed"], (self.stage, self.world_size)
        if (made_by["stage"], made_by["ranks"]) != now:
            raise RefusedInput(
                f"{checkpoint_path} was written under stage {made_by['stage']} by {made_by['ranks']} ranks, and this"
                f" run has stage {now[0]} and {now[1]} ranks: use the same, or load its networks alone."
            )
        verify_shards(Path(checkpoint_path), rest, self.global_rank, self.world_size)
        self.barrier()  # DeepSpeed loads any object: every rank's share must have passed
        for name, engine in self.engines.items():
            engine.load_checkpoint(str(checkpoint_path), tag=name, load_lr_scheduler_states=False)
        return rest

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if not self._resumes_from_shards():
            return super().load_model_state_dict(checkpoint, strict)
        self.lightning_module.load_state_dict(checkpoint["deepspeed"]["others"], strict=False)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        if not self._resumes_from_shards():
            super().load_optimizer_state_dict(checkpoint)


def _prefixes(network: Network) -> dict[str, str]:
    """Returns for the beginning of each name in the engine's module the beginning of its name in the user's module."""
    if len(network.roots) == 1 and not network.loose:
        return {"": f"{next(iter(network.roots))}."}
    roots = {f"{index}.": f"{path}." for index, path in enumerate(network.roots)}
    return roots | {str(index): name for index, name in enumerate(network.loose, start=len(network.roots))}


def _stored_names(network: Network) -> set[str]:
    """Returns the names in the module of the tensors that a network's engine stores."""
    inside = {f"{path}.{name}" for path, root in network.roots.items() for name in root.state_dict()}
    return inside | network.loose.keys()
