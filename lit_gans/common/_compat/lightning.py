"""Private APIs of Lightning. Checked with lightning 2.6.6."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from lit_gans.common.lightning import CheckpointIO, ClusterEnvironment, DDPStrategy, Strategy, Trainer, launchers


class CommandLauncher(launchers._SubprocessScriptLauncher):
    """Lightning's launcher of further processes, with a custom command.

    Overrides `_SubprocessScriptLauncher._call_children_scripts`, which runs `sys.argv` again: that loses the sweep of
    Hydra and does not work in a notebook. A method for the command was proposed
    in https://github.com/Lightning-AI/pytorch-lightning/pull/11617 and is not in Lightning.
    """

    def __init__(self, launcher: launchers._SubprocessScriptLauncher, command: Sequence[str]) -> None:
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
    """Makes a trainer start further processes, if any, with `command`: replaces `Strategy._launcher`.

    A strategy creates its launcher itself; see `CommandLauncher` for the issue.
    """
    if isinstance(trainer.strategy.launcher, launchers._SubprocessScriptLauncher):
        trainer.strategy._launcher = CommandLauncher(trainer.strategy.launcher, command)


def children(launcher: object) -> list[subprocess.Popen]:
    """Returns the processes that Lightning started, from `_SubprocessScriptLauncher.procs`.

    The launcher's `kill` does not wait for them, so that they may stay behind as zombies:
    https://github.com/Lightning-AI/pytorch-lightning/issues/17248.
    """
    return list(launcher.procs) if isinstance(launcher, launchers._SubprocessScriptLauncher) else []


def use_by_default(strategy: Strategy, checkpoint_io: CheckpointIO) -> None:
    """Makes a strategy read and write checkpoints with a plugin, unless the user chose one: `Strategy._checkpoint_io`.

    The public property `checkpoint_io` returns Lightning's default as if it had been chosen; a plugin that the
    constructor of a strategy passes on is refused beside one of the user. No issue found.
    """
    if strategy._checkpoint_io is None:
        strategy.checkpoint_io = checkpoint_io


def process_group_backend(strategy: DDPStrategy) -> str:
    """Returns the backend that Lightning will choose, from `_get_process_group_backend`.

    Unless the user has chosen one, the public property `process_group_backend`
    (https://github.com/Lightning-AI/pytorch-lightning/pull/11745) is None until the group exists. No issue found.
    """
    return strategy._get_process_group_backend()


def finds_unused_parameters(strategy: DDPStrategy) -> bool:
    """Returns whether Lightning's DDP supports frozen networks, from `DDPStrategy._ddp_kwargs`.

    There is no public API: the strategy keeps the arguments of DistributedDataParallel for itself. No issue found.
    """
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def synchronizes_batch_norm(strategy: DDPStrategy) -> bool:
    """Returns whether the trainer has `sync_batchnorm=True`, from the plugin `_layer_sync` of its strategy.

    There is no public API: the trainer hands its argument on
    (https://github.com/Lightning-AI/pytorch-lightning/pull/11754). No issue found.
    """
    return strategy._layer_sync is not None


def cluster_environment(trainer: Trainer) -> ClusterEnvironment | None:
    """Returns the environment that started the processes, from `Trainer._accelerator_connector`.

    Only strategies of several processes have a public attribute for it. No issue found.
    """
    return trainer._accelerator_connector.cluster_environment


def row_of_iteration(trainer: Trainer) -> tuple[int, dict[str, Any]] | None:
    """Returns the step and the values that Lightning hands to loggers after this iteration, or None if it hands none.

    Reads `Trainer._logger_connector` and `_batches_that_stepped`. Loggers receive them only after the last hook of the
    iteration, and thus after checkpoints that callbacks write:
    https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.6/src/lightning/pytorch/loops/training_epoch_loop.py.
    No issue found.
    """
    connector = trainer._logger_connector
    values = dict(connector.metrics["log"]) if connector.should_update_logs else {}
    if not values:
        return None
    step = values.pop("step", trainer.fit_loop.epoch_loop._batches_that_stepped)
    return int(step), {"epoch": trainer.current_epoch, **values}


def may_stop(trainer: Trainer) -> bool:
    """Returns whether a training whose `should_stop` is set ends now, from `FitLoop._can_stop_early`.

    With `min_steps` or `min_epochs` it goes on until then. No issue found.
    """
    return trainer.fit_loop._can_stop_early


class KeepsGivenSettings:
    """Base class, before `LightningCLI`, of one that trains a model with the settings of its command.

    Replaces `_parse_ckpt_path`, which reads the checkpoint of `--ckpt_path` and sets its settings instead, and refuses
    them where the checkpoint does not name its class in Lightning's way; modules of this package compare them when they
    are resumed. A hook is asked for in https://github.com/Lightning-AI/pytorch-lightning/issues/21255.
    """

    def _parse_ckpt_path(self) -> None:
        pass
