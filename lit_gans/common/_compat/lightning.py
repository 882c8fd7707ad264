"""Private APIs of Lightning. Checked with lightning 2.6.6."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lit_gans.common.lightning import (
    Callback,
    CheckpointIO,
    ClusterEnvironment,
    DDPStrategy,
    LightningModule,
    Precision,
    Strategy,
    Trainer,
    launchers,
)

_ITERATION_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


class CommandLauncher(launchers._SubprocessScriptLauncher):
    """Launcher that starts the processes of the other ranks with a custom command.

    Overrides `_SubprocessScriptLauncher._call_children_scripts`. This method runs `sys.argv` again, which loses the
    overrides of a Hydra sweep and does not work in a notebook. A method that returns the command was proposed in
    https://github.com/Lightning-AI/pytorch-lightning/pull/11617, but is not in Lightning.
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
    """Configures a trainer to start the processes of the other ranks, if there are any, with `command`.

    Replaces `Strategy._launcher`, because a strategy creates its own launcher. For the issue, see `CommandLauncher`.
    """
    if isinstance(trainer.strategy.launcher, launchers._SubprocessScriptLauncher):
        trainer.strategy._launcher = CommandLauncher(trainer.strategy.launcher, command)


def children(launcher: object) -> list[subprocess.Popen]:
    """Returns the processes that Lightning has started, from `_SubprocessScriptLauncher.procs`.

    The method `kill` of the launcher does not wait for the processes, so they can remain as zombies:
    https://github.com/Lightning-AI/pytorch-lightning/issues/17248.
    """
    return list(launcher.procs) if isinstance(launcher, launchers._SubprocessScriptLauncher) else []


def use_by_default(strategy: Strategy, checkpoint_io: CheckpointIO) -> None:
    """Sets the checkpoint plugin of a strategy, unless the user has set one.

    Reads `Strategy._checkpoint_io`, because the public property `checkpoint_io` returns the default plugin of Lightning
    if the user has set no plugin. A plugin in the constructor of a strategy would raise an error if the user sets a
    plugin, too. No issue found.
    """
    if strategy._checkpoint_io is None:
        strategy.checkpoint_io = checkpoint_io


def process_group_backend(strategy: DDPStrategy) -> str:
    """Returns the backend that Lightning will use for the process group, from `_get_process_group_backend`.

    Unless the user has set a backend, the public property `process_group_backend`
    (https://github.com/Lightning-AI/pytorch-lightning/pull/11745) is None until the process group exists. No issue
    found.
    """
    return strategy._get_process_group_backend()


def finds_unused_parameters(strategy: DDPStrategy) -> bool:
    """Returns whether DDP searches for unused parameters, as is necessary for frozen networks.

    Reads `DDPStrategy._ddp_kwargs`, because there is no public API for the arguments that the strategy passes to
    DistributedDataParallel. No issue found.
    """
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def synchronizes_batch_norm(strategy: DDPStrategy) -> bool:
    """Returns whether the trainer has `sync_batchnorm=True`, from the plugin `_layer_sync` of its strategy.

    There is no public API, because the trainer only passes this argument on
    (https://github.com/Lightning-AI/pytorch-lightning/pull/11754). No issue found.
    """
    return strategy._layer_sync is not None


def cluster_environment(trainer: Trainer) -> ClusterEnvironment | None:
    """Returns the cluster environment that started the processes, from `Trainer._accelerator_connector`.

    Only strategies for several processes have a public attribute for the environment. No issue found.
    """
    return trainer._accelerator_connector.cluster_environment


def row_of_iteration(trainer: Trainer) -> tuple[int, dict[str, Any]] | None:
    """Returns the step and the values that Lightning will log after this hook, or None if there are no values.

    Reads `Trainer._logger_connector` and `_batches_that_stepped`. The loggers receive the values of an iteration or
    an epoch only after its last hook, and therefore after callbacks have written checkpoints:
    https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.6/src/lightning/pytorch/loops/training_epoch_loop.py.
    No issue found.
    """
    connector = trainer._logger_connector
    ends_epoch = connector._first_loop_iter is None  # such values are logged with the step of the last iteration
    is_due = trainer.training and (ends_epoch or connector.should_update_logs)  # values of a validation are logged now
    values = dict(connector.metrics["log"]) if is_due else {}
    if not values:
        return None
    step = values.pop("step", trainer.fit_loop.epoch_loop._batches_that_stepped - ends_epoch)
    return int(step), {"epoch": trainer.current_epoch, **values}


def may_stop(trainer: Trainer) -> bool:
    """Returns whether training can end now that `should_stop` is set, from `FitLoop._can_stop_early`.

    Training continues until it has reached `min_steps` and `min_epochs`. No issue found.
    """
    return trainer.fit_loop._can_stop_early


class KeepsGivenSettings:
    """Mixin for subclasses of `LightningCLI` that keeps the settings of the command line when a run is resumed.

    The mixin must precede `LightningCLI` in the base classes. It disables `_parse_ckpt_path`, which replaces the
    settings by the settings in the checkpoint of `--ckpt_path`. That method also raises an error if the checkpoint does
    not name the model class in Lightning's format. The modules of this package compare the settings themselves when a
    run is resumed. A hook is requested in https://github.com/Lightning-AI/pytorch-lightning/issues/21255.
    """

    def _parse_ckpt_path(self) -> None:
        pass


def batch_index(trainer: Trainer) -> int:
    """Returns the index of the current training batch, counted over all epochs, from `Trainer.fit_loop`.

    The loops are protected since https://github.com/Lightning-AI/pytorch-lightning/pull/16445. The public `global_step`
    cannot be used, because it counts the steps of all optimizers.
    """
    return trainer.fit_loop.total_batch_idx


def count_step(trainer: Trainer) -> None:
    """Adds 1 to `Trainer.global_step` in manual optimization.

    The value is stored in `optim_step_progress` of the manual optimization loop. There is no public API
    (https://github.com/Lightning-AI/pytorch-lightning/issues/17958).
    """
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    steps.increment_ready()
    steps.increment_completed()


def set_steps(trainer: Trainer, number: int) -> None:
    """Sets `Trainer.global_step` in manual optimization; see `count_step`."""
    total = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
    total.ready = total.completed = number


def skip_empty_hooks(callbacks: Sequence[Callback]) -> None:
    """Makes Lightning skip the hooks of an iteration that a callback does not override.

    With two networks, Lightning calls eight hooks of each callback per iteration. Most are empty, but each call enters
    a profiler and formats the callback's `state_key`. `call._call_callback_hooks` skips hooks that are not callable, so
    this function sets empty hooks of the instance to None. The classes of the callbacks are not changed. No issue
    found.
    """
    for callback in callbacks:
        for name in _ITERATION_HOOKS:
            if getattr(getattr(callback, name), "__func__", None) is getattr(Callback, name):
                vars(callback)[name] = None


def publish_values(trainer: Trainer, values: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
    """Adds `values` to `Trainer.callback_metrics` and `logged_metrics`, and `shown` to `progress_bar_metrics`.

    This relies on the undocumented fact that these properties return the trainer's own dictionaries. `self.log` cannot
    be used in all hooks. No issue found.
    """
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    trainer.progress_bar_metrics.update(shown)


def run_hooks_before_step(plugin: Precision, model: LightningModule, optimizer: torch.optim.Optimizer) -> None:
    """Runs the hooks `on_before_optimizer_step`, and clips gradients according to the arguments of the Trainer.

    Calls `Precision._after_closure`, because a plugin that overrides `optimizer_step` has no public function for this.
    No issue found.
    """
    plugin._after_closure(model, optimizer)


def begin_epoch_after_resume(trainer: Trainer) -> None:
    """Counts the first epoch of a resumed run if its checkpoint was saved after the last batch of the previous epoch.

    In this case, Lightning completes the previous epoch, but does not count the new epoch as started
    (`FitLoop.on_advance_start`). All later checkpoints of the run would then count one epoch too few. A run that
    resumes from such a checkpoint would restart the epoch, with images that were already used for training. No issue
    found.
    """
    loop = trainer.fit_loop
    progress, end = loop.epoch_progress, trainer.max_epochs
    closed = loop.restarted_mid_epoch and progress.total.ready == progress.total.completed
    if closed and (end in (None, -1) or trainer.current_epoch < end):
        progress.increment_ready()
        progress.increment_started()


def reopen_epoch(checkpoint: dict[str, Any]) -> None:
    """Changes a checkpoint that was saved at the end of `fit`, so that a resumed run continues exactly there.

    At the end of `fit`, Lightning counts the last epoch as completed, even if `fit` ended in the middle of the epoch.
    A resumed run would skip the rest of the epoch or, if `fit` ended at its last batch, use a different next epoch.
    This function resets the counters to their values in the hook `on_train_batch_end` of the last batch. No issue
    found.
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
