"""Checkpoints of networks with DeepSpeed engines: single files with full tensors, or folders in DeepSpeed's format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn

from lit_gans.checkpoints.sharded import COMMITTED, REST, read_rest, verify_shards
from lit_gans.common._compat.deepspeed import zero3_shape, zero3_shard
from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.checkpoint_folders import replacing
from lit_gans.strategies.deepspeed.zero import ZeroOptimizer


class DeepSpeedCheckpoints:
    """Shards of ZeRO stage 3 and their full tensors, and checkpoints of either; mixed in before Lightning's class."""

    sharded_checkpoints: bool
    stage: int
    engines: dict[str, Any]
    _names: dict[int, str]
    _zero: dict[str, ZeroOptimizer]

    # ---- shards of parameters, and full tensors

    def local_shard(self, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a parameter under stage 3: flat, the last rank's padded."""
        return zero3_shard(parameter)

    def shard(self, full: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns this rank's shard of a full tensor of a parameter's shape under stage 3."""
        size = zero3_shard(parameter).numel()
        padded = full.new_zeros(size * self.world_size)
        padded[: full.numel()] = full.flatten()
        return padded[self.global_rank * size :][:size].clone()

    def unshard(self, shard: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns the full tensor of all ranks' shards under stage 3; every rank must call it."""
        padded = shard.new_empty(shard.numel() * self.world_size)
        dist.all_gather_into_tensor(padded, shard.contiguous())
        shape = zero3_shape(parameter)
        return padded[: shape.numel()].view(shape)

    def full_state_dict(self, network: nn.Module) -> dict[str, Tensor]:
        """Returns the full tensors of a network, on the CPU; every rank must call it."""
        parameters = dict(network.named_parameters(remove_duplicate=False))
        return {
            name: (
                self.unshard(self.local_shard(parameters[name]), parameters[name]) if name in parameters else value
            ).cpu()
            for name, value in network.state_dict().items()
        }

    # ---- writing

    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self.sharded_checkpoints:
            return {}
        state = self.lightning_module.state_dict()
        if self.is_sharded:
            for name in self.engines:
                full = self.full_state_dict(self.lightning_module.get_submodule(name))
                state |= {f"{name}.{key}": value for key, value in full.items()}
        return state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        if self.sharded_checkpoints:
            return {}
        if not self.stage or id(optimizer) not in self._names:
            return optimizer.state_dict()
        return self._zero[self._names[id(optimizer)]].state_dict()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if not self.sharded_checkpoints:
            return super().save_checkpoint(checkpoint, filepath, storage_options)
        state = self.lightning_module.state_dict()
        others = {name: value for name, value in state.items() if name.partition(".")[0] not in self.engines}
        made_by = {"networks": [*self.engines], "stage": self.stage, "ranks": self.world_size, "others": others}
        with replacing(Path(filepath), self) as folder:
            for name, engine in self.engines.items():
                engine.save_checkpoint(str(folder), tag=name, save_latest=False)
            if self.is_global_zero:
                torch.save(checkpoint | {"deepspeed": made_by, COMMITTED: True}, folder / REST)

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
                f" run has stage {now[0]} and {now[1]} ranks: use the same, or start from its networks with init_from."
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
        if self._resumes_from_shards():
            return
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if self.stage:
                self._zero[self._names[id(optimizer)]].load_state_dict(saved, self.shard)
            else:
                optimizer.load_state_dict(saved)
