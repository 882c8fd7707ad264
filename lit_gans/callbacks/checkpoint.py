"""Callback that saves the last and the best checkpoints, always at the end of an iteration."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.kept_checkpoints import BestCheckpoints, RecentCheckpoints, numbered
from lit_gans.callbacks.monitor import Monitor
from lit_gans.callbacks.rank_exchange import RankExchange
from lit_gans.callbacks.signals import Abandoned, StopSignals
from lit_gans.callbacks.slurm import requeue_job, requeue_signal
from lit_gans.callbacks.throughput import paused
from lit_gans.checkpoints.locate import FOLDER, verified_iteration
from lit_gans.checkpoints.remote import is_shortened_address
from lit_gans.common._compat.lightning import row_of_iteration
from lit_gans.common.atomic import duplicate, remove, replaced, sweep
from lit_gans.common.errors import FailedWrite, RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.folder_lock import locked
from lit_gans.training.callback import GenerativeCallback, callbacks_of, continues_run, is_last_iteration

_WRITES = ("last", "step-*", "best", "best-*")  # name patterns of the checkpoints that `RunCheckpoint` saves

Item = TypeVar("Item")


class RunCheckpoint(GenerativeCallback, LightningCheckpoint):
    """Saves `checkpoints/last.ckpt` and `checkpoints/best.ckpt` in the run folder.

    This callback counts generator iterations. Lightning's `ModelCheckpoint` counts every optimizer step under manual
    optimization and warns at every save.

    On Ctrl-C or SIGTERM, the current iteration finishes, `last.ckpt` is saved, and the training stops. A running
    measurement is interrupted after its current batch and repeated after resuming. The measurement at the last
    iteration is never interrupted. A second signal stops the process immediately. All ranks stop at the same iteration,
    about one second after any rank received the signal. If the signal is SLURM's requeue signal (SIGUSR1 by default),
    the job is requeued after the save.

    Previous checkpoints are kept as `step-00000500.ckpt` and `best-00000500.ckpt`, where the number is the iteration.
    `step-*.ckpt` of the last iteration is a hard link to `last.ckpt` where possible.

    Args:
        every_n_train_steps: number of generator iterations between two saves of the last checkpoint.
        monitor: key of the metric that selects the best checkpoint; `auto` uses the FID if it is measured, null saves
            no best checkpoint. The value of the untrained networks at iteration 0 does not count.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.
        train_time_interval: maximum time between two saves of the last checkpoint, in seconds. The checkpoint is saved
            at the end of the current iteration. null saves only every `every_n_train_steps` iterations.
        keep_last: number of most recent checkpoints to keep.
        keep_every_n_train_steps: number of generator iterations between two checkpoints that are kept permanently; null
            keeps no checkpoints permanently.
        save_top_k: number of best checkpoints to keep.

    Raises:
        RefusedInput: If a number is out of range, if nothing logs the metric, if the run folder is a URL, if another
            training is writing to it, or if it contains checkpoints of another run that is not resumed.
    """

    conflict = "write last.ckpt and best.ckpt (Lightning's ModelCheckpoint keeps the best by a second metric)"

    def __init__(
        self,
        every_n_train_steps: int = 100,
        monitor: str | None = "auto",
        mode: Literal["auto", "min", "max"] = "auto",
        train_time_interval: float | None = None,
        keep_last: int = 1,
        keep_every_n_train_steps: int | None = None,
        save_top_k: int = 1,
    ) -> None:
        refuse_below(1, every_n_train_steps=every_n_train_steps, save_top_k=save_top_k)
        refuse_below(1, keep_last=keep_last, keep_every_n_train_steps=keep_every_n_train_steps)
        refuse_not_positive(train_time_interval=train_time_interval)
        self.every_n_train_steps, self._monitor = every_n_train_steps, Monitor(monitor, mode)
        self.reads_logged = self._monitor.reads_logged
        self.train_time_interval = train_time_interval
        self._best = BestCheckpoints(save_top_k)
        self._recent = RecentCheckpoints(keep_last, keep_every_n_train_steps)
        self.untrained_value: float | None = None  # value of the monitored metric at iteration 0
        self._saved_at = 0.0  # time of the last save, from `monotonic`
        self._has_saved = False  # whether this process has saved a checkpoint
        self._signals, self._exchange, self._lock = StopSignals(), RankExchange(), ExitStack()
        self._requeue_signal: int | None = None
        self._has_validated = False  # whether a validation has ended in this run
        self._measured_at = -1  # iteration of the last measurement in this process
        self._batch_ended_at = 0  # iteration at the end of the previous batch
        self._last_at = -1  # iteration of the last saved checkpoint, or -1 if a measurement followed it
        self.stopped_by_signal = False  # whether a signal stopped the training early; equal on all ranks

    @staticmethod
    def folder(trainer: Trainer) -> Path:
        """Returns the checkpoint folder of a trainer."""
        return Path(trainer.default_root_dir) / FOLDER

    @property
    def best_step(self) -> int:
        """Iteration of the best checkpoint, or 0 if there is none."""
        return self._best.step

    @property
    def best_value(self) -> float | None:
        """Value of the best checkpoint, or None if there is none."""
        return self._best.value

    @property
    def received_signal(self) -> int | None:
        """Number of the signal that stopped the training, or None if no signal was received."""
        return self._signals.received

    def monitored(self, trainer: Trainer) -> tuple[str, str] | None:
        """Returns the key of the metric that selects the best checkpoint, and the best direction, `min` or `max`."""
        return self._monitor.monitored(trainer)

    def describe_best(self, trainer: Trainer) -> str | None:
        """Returns a phrase with the best value and its iteration, or None if there is none.

        The phrase includes the value of the untrained networks if that value is at least as good as the best value.
        """
        if self.best_value is None:
            return None
        text = f"{self.best_value:.4g} at iteration {self.best_step}, the best of the trained networks"
        untrained, rank = self.untrained_value, self._monitor.rank
        worse = untrained is not None and rank(trainer, self.best_value) >= rank(trainer, untrained)
        return f"{text}; untrained: {untrained:.4g}" if worse else text

    @property
    def state_key(self) -> str:
        return self._monitor.state_key("RunCheckpoint")

    def loads_state_of(self, key: str, state: dict[str, Any]) -> bool:
        """Returns whether a state belongs to a `RunCheckpoint`."""
        return key.partition("(")[0] == "RunCheckpoint"

    def state_dict(self) -> dict[str, Any]:
        best = {"top": self._best.values, "untrained_value": self.untrained_value}
        return self._monitor.state() | best | {"recent": self._recent.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._monitor.load(state_dict)
        self._best.values, self.untrained_value = dict(state_dict["top"]), state_dict["untrained_value"]
        self._recent.steps = list(state_dict["recent"])

    # ---- start of a training run

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            _refuse_url(trainer)
            if trainer.is_global_zero:
                self._lock.enter_context(locked(Path(trainer.default_root_dir)))
            self._measured_at, self._requeue_signal = -1, requeue_signal(trainer)
            self.stopped_by_signal = False
            if trainer.global_step == 0 and self._has_saved:  # this callback was used in a previous run
                self._best.values, self.untrained_value = {}, None
                self._monitor.reset()
                self._recent.steps, self._has_saved = [], False
            requeues = () if self._requeue_signal is None else (self._requeue_signal,)
            self._signals.start(signal.SIGINT, signal.SIGTERM, *requeues, says=trainer.is_global_zero)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._monitor.refuse_unmeasured(trainer)  # called here, because callbacks set their `directions` in `setup`
        if not trainer.strategy.restore_checkpoint_after_setup:  # otherwise Lightning loads the checkpoint later
            refuse_other_run(trainer)

    # ---- measurements

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        self._signals.again()  # Lightning replaces the handlers before the first measurement
        self._signals.share(trainer)

    def on_measure_end(self, trainer: Trainer) -> None:
        self._measured_at, self._last_at = trainer.global_step, -1

    def until_stopped(self, trainer: Trainer, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields the batches of a measurement until any rank has received a signal.

        At the last iteration, all batches are yielded, because no resumed training would repeat the measurement. Every
        rank must exhaust its iterator, because the ranks synchronize at its end. The number of batches can differ
        between ranks.

        Raises:
            Abandoned: If a signal was received. All ranks raise it.
        """
        if is_last_iteration(trainer):
            yield from batches
            return
        for batch in batches:
            if self._signals.came():
                break
            yield batch
        if trainer.world_size > 1:
            number = torch.tensor(self.received_signal or 0, device=trainer.strategy.root_device)
            self._signals.received = int(trainer.strategy.reduce(number, reduce_op="max")) or None
        if self.received_signal is not None:
            self._exchange.make_due(trainer)  # makes the ranks stop at the end of this iteration
            raise Abandoned

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._signals.again()
        self._saved_at = monotonic()
        self._exchange.start(trainer, self._saved_at)
        self._has_validated = False
        self._batch_ended_at = trainer.global_step
        # a measurement that is repeated after a resume is not in the checkpoint
        self._last_at = -1 if self._measured_at == trainer.global_step else trainer.global_step
        refuse_other_run(trainer)
        self._monitor.start(trainer)
        self._forget_others(trainer)
        self._match_files(trainer)
        value = self._monitor.value(trainer)
        if trainer.global_step == 0:
            self.untrained_value = value
        elif value is not None and self._measured_at == trainer.global_step:  # after an interrupted measurement
            self._save_best(trainer, value)
        if trainer.is_global_zero:
            sweep(self.folder(trainer), "*.ckpt")
            resumed, last = trainer.ckpt_path, self.folder(trainer) / "last.ckpt"
            # the process might have been killed after it saved last.ckpt and before it linked step-*.ckpt
            if resumed and Path(resumed).absolute() == last.absolute():
                self._recent.update(self.folder(trainer), trainer.global_step)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._signals.end()
        self._lock.close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        self._signals.end()
        self._lock.close()
        requeues = self.received_signal is not None and self.received_signal == self._requeue_signal
        if requeues and trainer.is_global_zero:  # as late as possible, because SLURM ends this job when it is requeued
            requeue_job()

    # ---- iterations

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        now, step = monotonic(), trainer.global_step
        is_time_over = self.train_time_interval is not None and now - self._saved_at >= self.train_time_interval
        number, is_save_due = self._exchange.agree(trainer, now, self.received_signal, is_time_over)
        if number is not None:
            self._signals.received = number
            self.stopped_by_signal = not is_last_iteration(trainer)
            trainer.should_stop = True
        self._monitor.refuse_unlogged(trainer)
        value = self._monitor.latest(trainer, self._measured_at == step)
        if value is not None:
            self._save_best(trainer, value)
        # modules with manual optimization may step several optimizers, or none, in a batch
        previous, self._batch_ended_at = self._batch_ended_at, step
        is_due = is_save_due or step // self.every_n_train_steps > previous // self.every_n_train_steps
        if is_due or self._recent.is_permanent(step) or is_last_iteration(trainer):
            self._save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._has_validated = True
            self._read_logged(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._has_validated or not trainer.enable_validation:
            self._monitor.refuse_unlogged(trainer, is_complete=True)
        self._read_logged(trainer)

    def _read_logged(self, trainer: Trainer) -> None:
        """Reads a value that a module has logged in validation or at the end of an epoch, after the last iteration."""
        value = self._monitor.latest(trainer, False)
        if value is None:
            return
        self._save_best(trainer, value)
        if self._last_at == trainer.global_step:  # last.ckpt must know the best value
            self._save_last(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the last iteration if it has not been saved, or if a measurement came after the save."""
        if self._last_at == trainer.global_step:
            return
        value = self._monitor.latest(trainer, self._measured_at == trainer.global_step)
        if value is not None:
            self._save_best(trainer, value)
        self._save_last(trainer)

    # ---- saving

    def _match_files(self, trainer: Trainer) -> None:
        """Makes the best values agree with the files if a run does not resume from `last.ckpt` of its folder.

        Values without a file are dropped. If `best.ckpt` is of another iteration than the best value, as after a resume
        from an earlier checkpoint, it gets a numbered name. A numbered name of the best checkpoint is also made if
        `save_top_k` was 1 before.
        """
        kept = [*self._best.values]
        if trainer.is_global_zero and trainer.ckpt_path is not None:
            folder, path = self.folder(trainer), self.folder(trainer) / "best.ckpt"
            is_last = Path(trainer.ckpt_path).absolute() == (folder / "last.ckpt").absolute()
            is_named = self._best.num == 1 or numbered(folder, "best", self.best_step).exists()
            iteration = None if is_last and is_named else _iteration_of(path)
            if iteration is not None:
                if iteration == self.best_step and self._best.num > 1:
                    duplicate(path, numbered(folder, "best", iteration))
                elif iteration != self.best_step and not is_last:
                    _rename_best(folder, iteration)
                    rank_zero_warn(
                        f"{path} is of iteration {iteration}, but this run resumes with a best checkpoint of iteration"
                        f" {self.best_step}: it is renamed to {numbered(folder, 'best', iteration).name}."
                    )
            if not is_last:
                kept = [step for step in kept if step == iteration or numbered(folder, "best", step).exists()]
        kept = trainer.strategy.broadcast(kept)
        self._best.values = {step: value for step, value in self._best.values.items() if step in kept}

    def _forget_others(self, trainer: Trainer) -> None:
        """Forgets the best values if they are of another metric or of an incomparable measurement."""
        if self._monitor.forgets(trainer):
            self._best.values, self.untrained_value = {}, None

    def _save_best(self, trainer: Trainer, value: float) -> None:
        """Saves a checkpoint if its value is among the `save_top_k` best values, and removes displaced checkpoints.

        The first best value replaces no checkpoint of values that were forgotten: that checkpoint gets a numbered name.
        """
        self._forget_others(trainer)
        folder, step = self.folder(trainer), trainer.global_step
        forgotten = _iteration_of(folder / "best.ckpt") if trainer.is_global_zero and not self._best.values else None
        if forgotten is not None and forgotten != step:
            _rename_best(folder, forgotten)
        displaced = self._best.add(step, value, lambda value: self._monitor.rank(trainer, value))
        is_best, path = step == self.best_step, numbered(folder, "best", step)
        if step in self._best.values:
            self._save(trainer, "best" if is_best else path.stem)
        if trainer.is_global_zero:
            if is_best and self._best.num > 1:
                duplicate(folder / "best.ckpt", path)
            for iteration in displaced:
                remove(numbered(folder, "best", iteration))

    def _save_last(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            self._recent.add(trainer.global_step)
        self._save(trainer, "last")
        self._saved_at, self._last_at = monotonic(), trainer.global_step
        if trainer.is_global_zero:
            self._recent.update(self.folder(trainer), trainer.global_step)

    def _save(self, trainer: Trainer, name: str) -> None:
        folder = self.folder(trainer)
        is_deleted = trainer.is_global_zero and self._has_saved and not folder.is_dir()
        with paused(trainer):
            row = row_of_iteration(trainer)  # Lightning logs this row only after it has saved the checkpoint
            for logger in trainer.loggers:
                if row is not None and isinstance(logger, CSVMetrics):
                    logger.save_iteration(*row)
            trainer.save_checkpoint(folder / f"{name}.ckpt")
        self._has_saved = True
        if is_deleted:
            raise FailedWrite(
                f"{folder} was deleted during the training, as was everything else in the run folder. {name}.ckpt was"
                " written again."
            )


def _iteration_of(path: Path) -> int | None:
    """Returns the iteration of a checkpoint, or None if it is missing or damaged."""
    try:
        return verified_iteration(path) if path.exists() else None
    except RefusedInput:
        return None


def _rename_best(folder: Path, iteration: int) -> None:
    """Renames `best.ckpt` to its numbered name, and replaces the checkpoint of this name."""
    path, new = folder / "best.ckpt", numbered(folder, "best", iteration)
    if new.exists() and path.samefile(new):  # a hard link, for which `rename` would do nothing
        remove(path)
        return
    remove(new)
    path.rename(new)


def refuse_other_run(trainer: Trainer) -> None:
    """Raises `RefusedInput` if `RunCheckpoint` would overwrite the checkpoints of another run.

    Also raised if the run folder is a URL.

    A run that resumes from a checkpoint in another folder may overwrite checkpoints up to the iteration at which it
    resumes. Every callback that writes to the run folder calls this function when the training starts, before it
    writes. This function also tells `CSVMetrics` which rows in its file belong to another run, or to iterations after
    the checkpoint.
    """
    _refuse_url(trainer)
    if not trainer.is_global_zero:
        return
    continues = continues_run(trainer)
    for logger in trainer.loggers:
        if isinstance(logger, CSVMetrics) and not continues:
            logger.begin_run()
        elif isinstance(logger, CSVMetrics) and trainer.global_step:  # 0 before a strategy loads the checkpoint
            logger.resume_at(trainer.global_step)
    if continues:
        return
    if not callbacks_of(trainer, RunCheckpoint):
        return
    folder, start = RunCheckpoint.folder(trainer), trainer.global_step
    patterns = [folder / f"{name}.ckpt" for name in _WRITES]
    patterns = [path for pattern in patterns for path in (pattern, replaced(pattern))]  # also interrupted replacements
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern.name), reverse=True)]
    if trainer.ckpt_path is not None:  # `start` is 0 before `on_train_start`, when the iteration is not known yet
        paths = [path for path in paths if start and verified_iteration(path) > start]
    if paths:
        raise RefusedInput(
            f"{folder} has the checkpoints of another run, which this training would overwrite. To continue that run,"
            f' resume it: trainer.fit(..., ckpt_path="{paths[0]}"), --ckpt_path {paths[0]} on the command line, or'
            f" resume=auto of lit-gans train. To start a new run, choose another folder (trainer.default_root_dir), or"
            f" delete {folder}."
        )


def _refuse_url(trainer: Trainer) -> None:
    folder = trainer.default_root_dir
    if is_shortened_address(folder):
        raise RefusedInput(
            f"trainer.default_root_dir={folder} is a URL, but the run folder must be local: choose a local folder, and"
            " add the callback Mirror, which copies it to a URL."
        )
