"""The files of a run in its folder, which the training of another run neither replaces nor mixes with its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from lightning.pytorch import Trainer

from lit_gans.checkpoints.locate import FOLDER, verified_iteration
from lit_gans.common.errors import RefusedInput
from lit_gans.training.callback import GenerativeCallback, callbacks_of, continues_run

_NAMES = ("last", "step-*", "best", "best-*")  # of checkpoints
_CHECKPOINTS = [f"{FOLDER}/{name}.ckpt{end}" for name in _NAMES for end in ("", ".old")]  # of a torn replacement, too
_OTHERS = ("run.yaml", "metrics.csv", "protocol.json", "samples/[0-9]*.png", "samples/training.gif")


@runtime_checkable
class LogFile(Protocol):
    """A logger with one file, which a resumed run continues."""

    @property
    def path(self) -> Path:
        """Path of the file."""

    def begin_run(self) -> None:
        """Lets the first row that is written replace an existing file."""


def begin_run(trainer: Trainer) -> None:
    """Refuses a new training that would write into the folder of another run, see `refuse_run_in`, and tells loggers
    whether it continues the run; for `on_fit_start`, before anything is written.
    """
    if continues_run(trainer):
        return
    files = [each for each in trainer.loggers if isinstance(each, LogFile)]
    writes = any(each.writes_files for each in callbacks_of(trainer, GenerativeCallback))
    if trainer.is_global_zero and trainer.ckpt_path is None and (writes or files):
        refuse_run_in(trainer, *(each.path for each in files))
    for each in files:
        each.begin_run()


def refuse_run_in(trainer: Trainer, *more: Path) -> None:
    """Raises `RefusedInput` if the folder of a new training has files of another run, or if one of `more` exists.

    What an interrupted run without a checkpoint left may be replaced, if a callback knows that this is the same run.
    """
    folder = Path(trainer.default_root_dir)
    checkpoints = [*_found(folder, _CHECKPOINTS)]
    if checkpoints:
        _refuse_checkpoints(folder, checkpoints[0])
    again = any(each.begins_again for each in callbacks_of(trainer, GenerativeCallback))
    found = [*_found(folder, _OTHERS), *(path for path in more if path.exists())]
    if found and not again:
        raise RefusedInput(
            f"{found[0]} is of another run, with which this training would mix. To start a new run, choose another"
            f" folder (trainer.default_root_dir), or delete what that run left in {folder}."
        )


def refuse_longer_run(trainer: Trainer) -> None:
    """Raises `RefusedInput` for a training from a checkpoint elsewhere if its folder has checkpoints of more
    iterations; for `on_train_start`, once the iteration is known and before anything is written.
    """
    if not trainer.is_global_zero or trainer.ckpt_path is None or continues_run(trainer):
        return
    folder = Path(trainer.default_root_dir)
    for path in _found(folder, _CHECKPOINTS):
        if verified_iteration(path) > trainer.global_step:
            _refuse_checkpoints(folder, path)


def _found(folder: Path, patterns: list[str] | tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(folder.glob(pattern), reverse=True)


def _refuse_checkpoints(folder: Path, path: Path) -> None:
    raise RefusedInput(
        f"{folder} has the checkpoints of another run, which this training would replace or mix with its own files. To"
        f' continue that run, resume it: trainer.fit(..., ckpt_path="{path}"), in a command --ckpt_path {path}, or'
        " resume=auto of lit-gans train. To start a new run, choose another folder (trainer.default_root_dir), or"
        f" delete {folder}."
    )
