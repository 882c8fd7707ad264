"""Lightning's private parts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher


class CommandLauncher(_SubprocessScriptLauncher):
    """Lightning's launcher of further processes, with a custom command.

    Lightning runs `sys.argv` again, which loses the sweep of Hydra and does not work in a notebook.
    """

    def __init__(self, launcher: _SubprocessScriptLauncher, command: Sequence[str]) -> None:
        super().__init__(launcher.cluster_environment, launcher.num_processes, launcher.num_nodes)
        self.command = list(command)

    def _call_children_scripts(self) -> None:
        self._check_can_spawn_children()
        os.environ |= {
            "MASTER_ADDR": self.cluster_environment.main_address,
            "MASTER_PORT": str(self.cluster_environment.main_port),
            "NODE_RANK": str(self.cluster_environment.node_rank()),
            "LOCAL_RANK": str(self.cluster_environment.local_rank()),
            "WORLD_SIZE": str(self.num_processes * self.num_nodes),
        }
        for local_rank in range(1, self.num_processes):
            environment = os.environ | {"LOCAL_RANK": str(local_rank)}
            self.procs.append(subprocess.Popen(self.command, env=environment))


def start_others_with(trainer: Trainer, command: Sequence[str]) -> None:
    """Makes a trainer start further processes, if any, with `command`."""
    if isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
        trainer.strategy._launcher = CommandLauncher(trainer.strategy.launcher, command)


def children(launcher: object) -> list[subprocess.Popen]:
    """Returns the processes that Lightning started; its launcher is private, and its `kill` does not wait for them."""
    return list(launcher.procs) if isinstance(launcher, _SubprocessScriptLauncher) else []


def process_group_backend(strategy: DDPStrategy | ModelParallelStrategy) -> str:
    """Returns the backend that Lightning will choose; the public property is None until the group exists."""
    return strategy._get_process_group_backend()


def finds_unused_parameters(strategy: DDPStrategy) -> bool:
    """Returns whether Lightning's DDP supports frozen networks, from its private attribute with DDP's arguments."""
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def run_step_hooks(strategy: Any, module: LightningModule, optimizer: torch.optim.Optimizer) -> None:
    """Runs `on_before_optimizer_step` and Lightning's clipping when an engine steps instead of the optimizer.

    Lightning's own DeepSpeed plugin calls the same private method.
    """
    strategy.precision_plugin._after_closure(module, optimizer)


def set_data_parallel_size(strategy: ModelParallelStrategy, size: int) -> None:
    """Sets the data parallel size, a constructor argument that is known only once the trainer exists.

    Lightning's "auto" is always the number of nodes, regardless of the tensor parallel size.
    """
    strategy._data_parallel_size = size


def synchronises_batch_norm(strategy: DDPStrategy | ModelParallelStrategy) -> bool:
    """Whether the trainer has `sync_batchnorm=True`, from the strategy's private plugin."""
    return strategy._layer_sync is not None


def accept_without_configure_model(module: LightningModule) -> None:
    """Lets Lightning accept a module without `configure_model`, since the strategy shards the networks itself.

    Lightning looks for an override on the instance, so that the class need not change.
    """
    if type(module).configure_model is LightningModule.configure_model:
        module.configure_model = lambda: None
