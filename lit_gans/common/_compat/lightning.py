"""Private APIs of Lightning. Checked with lightning 2.6.6."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lit_gans.common.lightning import (
    CheckpointIO,
    ClusterEnvironment,
    DDPStrategy,
    LightningModule,
    Precision,
    Strategy,
    Trainer,
    launchers,
)


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


def batch_index(trainer: Trainer) -> int:
    """Returns the index of the current training batch, counted over all epochs, from `Trainer.fit_loop`.

    The loops are protected since https://github.com/Lightning-AI/pytorch-lightning/pull/16445; the public `global_step`
    counts the steps of all optimizers.
    """
    return trainer.fit_loop.total_batch_idx


def count_step(trainer: Trainer) -> None:
    """Adds 1 to `Trainer.global_step` under manual optimization, which is `optim_step_progress` of a loop.

    There is no public API (https://github.com/Lightning-AI/pytorch-lightning/issues/17958).
    """
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    steps.increment_ready()
    steps.increment_completed()


def set_steps(trainer: Trainer, number: int) -> None:
    """Sets `Trainer.global_step` under manual optimization; see `count_step`."""
    total = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
    total.ready = total.completed = number


def publish_values(trainer: Trainer, values: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
    """Adds values to `Trainer.callback_metrics` and `logged_metrics`, and `shown` to `progress_bar_metrics`.

    The properties return the dictionaries that the trainer keeps, which is not documented. `self.log` is not allowed in
    every hook. No issue found.
    """
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    trainer.progress_bar_metrics.update(shown)


def run_hooks_before_step(plugin: Precision, model: LightningModule, optimizer: torch.optim.Optimizer) -> None:
    """Runs the hooks `on_before_optimizer_step`, and clips as the Trainer's arguments ask, by
    `Precision._after_closure`.

    A plugin that overrides `optimizer_step` has no public way to run them. No issue found.
    """
    plugin._after_closure(model, optimizer)


def begin_epoch_after_resume(trainer: Trainer) -> None:
    """Counts the epoch that a run begins with if its checkpoint was saved after the last batch of the epoch before.

    Lightning then closes the old epoch, but does not count the new one as begun (`FitLoop.on_advance_start`). All later
    checkpoints of that run have one epoch too few, and a run that resumes from one of them would begin its epoch anew,
    on images that it has already seen. No issue found.
    """
    loop = trainer.fit_loop
    progress, end = loop.epoch_progress, trainer.max_epochs
    closed = loop.restarted_mid_epoch and progress.total.ready == progress.total.completed
    if closed and (end in (None, -1) or trainer.current_epoch < end):
        progress.increment_ready()
        progress.increment_started()


def reopen_epoch(checkpoint: dict[str, Any]) -> None:
    """Lets a run that resumes from a checkpoint, saved when a fit had ended, continue where that fit ended.

    Lightning then counts the last epoch as completed, even if the fit ended in the middle of it: the resumed run would
    leave out the rest of the epoch or, after its last batch, see another one. The counters become those of the hook
    `on_train_batch_end` of the last batch. No issue found.
    """
    fit_loop = checkpoint["loops"]["fit_loop"]
    epochs, batches = fit_loop["epoch_progress"], fit_loop["epoch_loop.batch_progress"]
    if not epochs["total"]["ready"] == epochs["total"]["completed"] > 0:
        return
    for counts in (epochs["total"], epochs["current"]):
        counts["processed"] = counts["completed"] = counts["ready"] - 1
    for counts in (batches["total"], batches["current"]):
        counts["completed"] = counts["ready"] - 1
    fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1
