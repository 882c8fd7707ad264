"""Callback that copies the run folder to an fsspec URL, such as `s3://bucket/run`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.checkpoints.locate import FOLDER
from lit_gans.checkpoints.remote import NUMBERED, Remote
from lit_gans.checkpoints.sharded import COMMIT
from lit_gans.common.atomic import failed_write, is_finished
from lit_gans.training.callback import GenerativeCallback

logger = logging.getLogger(__name__)

Version = tuple[int, int, int, int]  # inode, size, modification time and status change time of a file


class Mirror(GenerativeCallback):
    """Copies changed files of the run folder to an fsspec URL, after each checkpoint and when the training ends.

    Rank 0 copies in a thread, so that the training does not wait. Checkpoints are copied last, so that the copied
    `metrics.csv` contains their rows. The commit marker of a sharded checkpoint is copied after its shards. If a copy
    fails, it is retried after the next checkpoint. Only previous checkpoints that `RunCheckpoint` no longer
    keeps are removed from the URL.

    Args:
        address: URL of a folder, such as `s3://bucket/run`.

    Raises:
        RefusedInput: If the file system of the URL does not exist, or if its package is not installed.
        FailedWrite: If some files could not be copied when the training ended. The run folder itself is complete.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        Remote(address)
        self._folder: Path | None = None  # run folder of the last training
        self._has_begun = False  # whether this training has begun; otherwise the folder might belong to another run
        self._sent: dict[str, Version] = {}  # files of the folder that have been copied
        self._is_due = False
        self._thread = ThreadPoolExecutor(1)
        self._sending: Future[None] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._has_begun = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse_other_run(trainer)
        folder, self._has_begun = Path(trainer.default_root_dir), True
        if folder != self._folder:
            self._folder, self._sent = folder, {}

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._is_due = True  # this hook precedes the save; the file is complete when the next iteration starts

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._is_due and trainer.is_global_zero and (self._sending is None or self._sending.done()):
            self._warn_of_failure()
            self._start()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if trainer.is_global_zero and self._has_begun:
            self._start(removes=False)  # files might be missing because they were deleted, which ended the training
            self._warn_of_failure()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero or not self._has_begun:
            return
        wait([self._sending] if self._sending is not None else [])
        try:
            self._start().result()
        except Exception as error:  # file systems raise errors of any type
            raise failed_write(self.address, error) from error
        logger.info("copied to %s", self.address)

    def _start(self, removes: bool = True) -> Future[None]:
        """Starts copying, in the thread, all files that have changed since they were last copied.

        Args:
            removes: whether checkpoints that no longer exist are removed from the URL.
        """
        assert self._folder is not None
        folder, self._is_due = self._folder, False
        paths = (path for path in folder.rglob("*") if path.is_file() and is_finished(path.relative_to(folder)))
        versions = {path.relative_to(folder).as_posix(): _version(path) for path in paths}
        changed = {name for name, version in versions.items() if self._sent.get(name) != version}
        # a checkpoint that is open stays readable when it is replaced; its rows of metrics.csv are already on disk
        opened = {name: (folder / name).open("rb") for name in changed if _is_checkpoint(name)}
        removed = [name for name in self._sent.keys() - versions.keys() if removes and NUMBERED.match(name)]
        self._sending = self._thread.submit(self._send, folder, versions, removed, changed, opened)
        return self._sending

    def _send(
        self,
        folder: Path,
        versions: Mapping[str, Version],
        removed: Sequence[str],
        changed: set[str],
        opened: Mapping[str, BufferedIOBase],
    ) -> None:
        """Copies changed files to the URL, and removes other files from it."""
        remote = Remote(self.address)
        with ExitStack() as stack:
            for file in opened.values():
                stack.enter_context(file)
            for name in removed:
                remote.remove(name)
                del self._sent[name]
            for name in changed:
                if name.endswith(f"/{COMMIT}"):
                    remote.remove(name)
            for name in sorted(changed, key=_order):
                if name in opened:
                    remote.write(name, opened[name])
                elif (folder / name).exists():  # might have been removed since `_start` listed it
                    with (folder / name).open("rb") as file:
                        remote.write(name, file)
                self._sent[name] = versions[name]

    def _warn_of_failure(self) -> None:
        error = self._sending.exception() if self._sending is not None else None
        if error is not None:
            logger.warning("%s cannot be written: %s", self.address, error)


def _is_checkpoint(name: str) -> bool:
    return name.startswith(f"{FOLDER}/")


def _order(name: str) -> tuple[bool, bool, str]:
    """Returns a sort key that puts checkpoints last, and the commit marker of a sharded checkpoint after its shards."""
    return _is_checkpoint(name), name.endswith(f"/{COMMIT}"), name


def _version(path: Path) -> Version:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
