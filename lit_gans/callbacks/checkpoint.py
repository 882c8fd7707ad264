"""The last and the best checkpoints, written only at iteration boundaries, also when the run is interrupted."""

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

from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.monitor import Monitor
from lit_gans.callbacks.signals import Abandoned, StopSignals, requeue_job, requeue_signal
from lit_gans.callbacks.throughput import paused
from lit_gans.checkpoints.locate import FOLDER, verified_iteration
from lit_gans.common._compat.lightning import row_of_iteration
from lit_gans.common.atomic import duplicate, remove, sweep
from lit_gans.common.errors import FailedWrite, RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.folder_lock import locked
from lit_gans.training.callback import GenerativeCallback, callbacks_of, continues_run, is_last_iteration

_WRITES = ("last", "step-*", "best", "best-*")  # names of checkpoints
_EXCHANGE_SECONDS = 1.0  # of training between two exchanges over the ranks, about

Item = TypeVar("Item")


class Checkpoint(GenerativeCallback, LightningCheckpoint):
    """Writes `checkpoints/last.ckpt` and `checkpoints/best.ckpt` under the run folder.

    Lightning's `ModelCheckpoint` counts every optimizer step under manual optimization and warns at each save; this
    callback counts generator iterations. On Ctrl-C or SIGTERM, the current iteration finishes, `last.ckpt` is written
    and the training stops; a measurement ends without values, within one of its batches, and is made when the training
    is resumed. That of the last iteration is made to its end. A second signal stops the process immediately. Several
    ranks stop at the same iteration, about a second after a signal to any of them. On the signal that SLURM's
    environment has for it, by default SIGUSR1, the job is then queued again.

    Earlier ones are kept as `step-00000500.ckpt` and `best-00000500.ckpt`, numbered by iteration. Those of the
    last checkpoint are hard links where the file system has them.

    Args:
        every_n_train_steps: number of generator iterations between two writes of the last checkpoint.
        monitor: key of the metric that selects the best checkpoint; `auto` uses the FID if it is measured, null writes
            no best checkpoint. Its value at iteration 0, of untrained networks, does not count.
        mode: whether smaller (`min`) or larger (`max`) values are better; `auto` uses the direction of the metric.
        train_time_interval: number of seconds after which the last checkpoint is also written, at the next iteration
            boundary; null writes by iterations alone.
        keep_last: number of the last checkpoints to keep.
        keep_every_n_train_steps: keeps the checkpoint of every n-th generator iteration permanently; null keeps none.
        save_top_k: number of the best checkpoints to keep.

    Raises:
        RefusedInput: a number is out of range, nothing logs the metric, another training writes to the folder, or the
            folder has checkpoints of another run, from which the training does not resume.
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
        self.train_time_interval, self.save_top_k = train_time_interval, save_top_k
        self.keep_last, self.keep_every_n_train_steps = keep_last, keep_every_n_train_steps
        self._top: dict[int, float] = {}  # values of the best checkpoints by iteration, the best first
        self.untrained_value: float | None = None  # of the monitor at iteration 0
        self._saved_at = 0.0  # seconds of the clock
        self._wrote = False  # whether this process has written a checkpoint
        self._signals, self._lock = StopSignals(), ExitStack()
        self._requeue_signal: int | None = None
        self._exchange_at = self._iterations = 1  # of the next exchange over the ranks, and since the last one
        self._exchanged_at = 0.0  # seconds of the clock
        self._measured_at = -1  # iteration of the last measurement of this process
        self._last_at = -1  # iteration of the last checkpoint with all measured values
        self.stopped_by_signal = False  # whether a signal stopped the training early, the same on every rank

    @staticmethod
    def folder(trainer: Trainer) -> Path:
        """Returns the checkpoint folder of a trainer."""
        return Path(trainer.default_root_dir) / FOLDER

    @property
    def best_step(self) -> int:
        """Iteration of the best checkpoint, or 0."""
        return next(iter(self._top), 0)

    @property
    def best_value(self) -> float | None:
        """Value of the best checkpoint, or None."""
        return self._top.get(self.best_step)

    @property
    def received_signal(self) -> int | None:
        """Number of the signal that ended the training, or None."""
        return self._signals.received

    def monitored(self, trainer: Trainer) -> tuple[str, str] | None:
        """Returns the key of the metric that selects the best checkpoint, and whether its `min` or `max` is best."""
        return self._monitor.monitored(trainer)

    def describe_best(self, trainer: Trainer) -> str | None:
        """Returns the best value and its iteration in words, or None; says if untrained networks had a better one."""
        if self.best_value is None:
            return None
        text = f"{self.best_value:.2f} at iteration {self.best_step}, the best of the trained networks"
        untrained, rank = self.untrained_value, self._monitor.rank
        worse = untrained is not None and rank(trainer, self.best_value) >= rank(trainer, untrained)
        return f"{text}; untrained: {untrained:.2f}" if worse else text

    @property
    def state_key(self) -> str:
        return self._monitor.state_key("Checkpoint")

    def state_dict(self) -> dict[str, Any]:
        return {"top": self._top, "untrained_value": self.untrained_value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._top, self.untrained_value = dict(state_dict["top"]), state_dict["untrained_value"]

    # ---- the start and the end of a training

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            if trainer.is_global_zero:
                self._lock.enter_context(locked(Path(trainer.default_root_dir)))
            self._measured_at, self._requeue_signal = -1, requeue_signal(trainer)
            self.stopped_by_signal = False
            if trainer.global_step == 0 and self._wrote:  # a new training with the callback of an earlier one
                self._top, self.untrained_value, self._wrote = {}, None, False
            requeues = () if self._requeue_signal is None else (self._requeue_signal,)
            self._signals.start(signal.SIGINT, signal.SIGTERM, *requeues, says=trainer.is_global_zero)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._monitor.refuse_unmeasured(trainer)  # every callback knows by now what it measures
        if not trainer.strategy.restore_checkpoint_after_setup:  # else Lightning has not read the checkpoint yet
            refuse_other_run(trainer)

    # ---- a measurement

    def on_measure_start(self, trainer: Trainer, description: str) -> None:
        self._signals.again()  # before that of iteration 0, Lightning has replaced them
        self._signals.share(trainer)

    def on_measure_end(self, trainer: Trainer) -> None:
        self._measured_at, self._last_at = trainer.global_step, -1

    def until_stopped(self, trainer: Trainer, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields batches of a measurement until a signal has come to any rank; in the last iteration, all batches:
        nothing is left to be resumed then, which would make the measurement.

        Every rank must take its batches to the end, however many they are: there, the ranks agree.

        Raises:
            Abandoned: a signal came, on every rank alike.
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
            self._exchange_at = trainer.global_step  # the ranks stop at the end of this iteration
            raise Abandoned

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._signals.again()
        self._saved_at = self._exchanged_at = monotonic()
        self._exchange_at, self._iterations = trainer.global_step + 1, 1
        self._last_at = trainer.global_step
        refuse_other_run(trainer)
        if not continues_run(trainer):
            for logger in trainer.loggers:
                if isinstance(logger, CSVMetrics):
                    logger.begin_run()
        self._monitor.start(trainer)
        value = self._monitor.value(trainer)
        if trainer.global_step == 0:
            self.untrained_value = value
        elif value is not None and self._measured_at == trainer.global_step:  # what a signal had ended
            self._write_best(trainer, value)
        if trainer.is_global_zero:
            sweep(self.folder(trainer), "*.ckpt")
            resumed, last = trainer.ckpt_path, self.folder(trainer) / "last.ckpt"
            if resumed and Path(resumed).absolute() == last.absolute():  # a kill may have come before it was kept
                self._keep_last(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._signals.end()
        self._lock.close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._signals.end()
        self._lock.close()
        asked = self.received_signal is not None and self.received_signal == self._requeue_signal
        if asked and trainer.is_global_zero:  # as late as possible: SLURM then ends the job
            requeue_job()

    # ---- an iteration

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        stops, late = self._stops_or_is_late(trainer)
        if stops:
            self.stopped_by_signal = not is_last_iteration(trainer)
            trainer.should_stop = True
        self._monitor.refuse_unlogged(trainer)
        step = trainer.global_step
        # what callbacks measure changes in measurements alone, and Lightning collects all values at each look at one
        value = self._monitor.new(trainer) if self.reads_logged or self._measured_at == step else None
        if value is not None:
            self._write_best(trainer, value)
        if late or step % self.every_n_train_steps == 0 or self._is_permanent(step) or is_last_iteration(trainer):
            self._write_last(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the last iteration if it was not known as the last one, or if it was measured since it was saved."""
        if self._last_at == trainer.global_step:
            return
        value = self._monitor.new(trainer) if self._measured_at == trainer.global_step else None
        if value is not None:
            self._write_best(trainer, value)
        self._write_last(trainer)

    def _stops_or_is_late(self, trainer: Trainer) -> tuple[bool, bool]:
        """Returns whether a signal stops the training, and whether the time since the last save is up by the clock of
        rank 0: the same values on every rank, so that all ranks stop and save at the same iteration.

        An exchange waits for the device. Ranks therefore exchange only about once a second, at iterations that they
        agree on in the exchange before, and in the last iteration.
        """
        now, step = monotonic(), trainer.global_step
        late = self.train_time_interval is not None and now - self._saved_at >= self.train_time_interval
        if trainer.world_size == 1:
            return self.received_signal is not None, late
        if step < self._exchange_at and not is_last_iteration(trainer):
            return False, False
        in_time = int(self._iterations * _EXCHANGE_SECONDS / max(now - self._exchanged_at, 1e-9))
        iterations = max(1, min(in_time, 2 * self._iterations))  # a few fast ones say little about the next ones
        own = [self.received_signal or 0, int(late and trainer.is_global_zero), -iterations]
        values = trainer.strategy.reduce(torch.tensor(own, device=trainer.strategy.root_device), reduce_op="max")
        number, is_late, negative = values.tolist()
        self._exchanged_at, self._iterations = now, -negative
        self._exchange_at = step + self._iterations
        self._signals.received = number or None
        return bool(number), bool(is_late)

    def _is_permanent(self, step: int) -> bool:
        return self.keep_every_n_train_steps is not None and step % self.keep_every_n_train_steps == 0

    # ---- writing

    def _write_best(self, trainer: Trainer, value: float) -> None:
        """Writes a checkpoint whose value is among the best that are kept, and removes the one that is no longer."""
        folder, step = self.folder(trainer), trainer.global_step
        values = self._top | {step: value}
        ranked = sorted(values, key=lambda each: (self._monitor.rank(trainer, values[each]), each))
        self._top = {each: values[each] for each in ranked[: self.save_top_k]}
        name = numbered(folder, "best", step)
        if step in self._top:
            self._write(trainer, "best" if step == self.best_step else name.stem)
        if trainer.is_global_zero:
            if step == self.best_step and self.save_top_k > 1:
                duplicate(folder / "best.ckpt", name)
            for each in ranked[self.save_top_k :]:
                remove(numbered(folder, "best", each))

    def _write_last(self, trainer: Trainer) -> None:
        self._write(trainer, "last")
        self._saved_at, self._last_at = monotonic(), trainer.global_step
        if trainer.is_global_zero:
            self._keep_last(trainer)

    def _keep_last(self, trainer: Trainer) -> None:
        """Keeps the last checkpoint, which was just written, under its number, and removes those that are no longer
        among the last.

        Both names are hard links to the same bytes. What is removed depends only on the names in the folder, so that a
        killed run leaves nothing behind that a resumed run would not remove. Checkpoints of higher iterations, of
        another training from an earlier checkpoint, stay.
        """
        folder, step = self.folder(trainer), trainer.global_step
        if self.keep_last > 1 or self._is_permanent(step):
            duplicate(folder / "last.ckpt", numbered(folder, "step", step))
        names = (path.stem.removeprefix("step-") for path in folder.glob("step-*.ckpt"))
        earlier = sorted(int(name) for name in names if name.isdecimal() and int(name) <= step)
        newest = earlier[-self.keep_last :] if self.keep_last > 1 else []
        for each in earlier:
            if each not in newest and not self._is_permanent(each):
                remove(numbered(folder, "step", each))

    def _write(self, trainer: Trainer, name: str) -> None:
        folder = self.folder(trainer)
        lost = trainer.is_global_zero and self._wrote and not folder.is_dir()
        with paused(trainer):
            row = row_of_iteration(trainer)  # Lightning logs it after the checkpoint
            for logger in trainer.loggers:
                if row is not None and isinstance(logger, CSVMetrics):
                    logger.save_iteration(*row)
            trainer.save_checkpoint(folder / f"{name}.ckpt")
        self._wrote = True
        if lost:
            raise FailedWrite(
                f"{folder} was deleted during the training, with what else was in the folder of the run. {name}.ckpt"
                " was written again."
            )


def refuse_other_run(trainer: Trainer) -> None:
    """Raises `RefusedInput` if a `Checkpoint` would replace the checkpoints of another run.

    A training that resumes from a checkpoint elsewhere may replace checkpoints of no more iterations. Every callback
    that writes into the folder of the run calls this function first, when the training starts.
    """
    if not trainer.is_global_zero or not callbacks_of(trainer, Checkpoint) or continues_run(trainer):
        return
    folder, start = Checkpoint.folder(trainer), trainer.global_step
    names = [f"{name}.ckpt{end}" for name in _WRITES for end in ("", ".old")]  # also of an interrupted replacement
    found = [path for name in names for path in sorted(folder.glob(name), reverse=True)]
    if trainer.ckpt_path is not None:  # before `on_train_start`, its iteration is not known
        found = [path for path in found if start and verified_iteration(path) > start]
    if found:
        raise RefusedInput(
            f"{folder} has the checkpoints of another run, which this training would replace. To continue that run,"
            f' resume it: trainer.fit(..., ckpt_path="{found[0]}"), in a command --ckpt_path {found[0]}, or resume=auto'
            f" of lit-gans train. To start a new run, choose another folder (trainer.default_root_dir), or delete"
            f" {folder}."
        )


def numbered(folder: Path, kind: str, step: int) -> Path:
    """Returns the path of the checkpoint of an iteration: `step-00000500.ckpt`."""
    return folder / f"{kind}-{step:08d}.ckpt"
