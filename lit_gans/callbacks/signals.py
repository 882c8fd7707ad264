"""Signals that ask a training to stop at the next iteration boundary and end its measurement, on every rank; jobs of
SLURM that are queued again.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import uuid
from contextlib import suppress
from types import FrameType
from typing import Any

from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch import Trainer
from torch import distributed
from torch.distributed import PrefixStore, Store

from lit_gans.common._compat.lightning import cluster_environment
from lit_gans.common._compat.torch import default_store

logger = logging.getLogger(__name__)

_CAME = "came"  # key of the store


class Abandoned(Exception):
    """A signal has ended a measurement before its values were known."""


class StopSignals:
    """Notes the first signal; a second one takes effect immediately.

    Lightning installs handlers of its own after its `setup` hooks and restores, at the end, those that it found. Ours
    are therefore installed before and again after that, and give way if they are called after the training.

    Attributes:
        received: number of the signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._waiting = self._says = False
        self._before: dict[int, Any] = {}
        self._store: Store | None = None  # of this training, on several ranks

    def start(self, *numbers: int, says: bool = True) -> None:
        """Begins to wait for signals; does nothing outside the main thread, which alone may handle them.

        Args:
            *numbers: numbers of the signals.
            says: whether the first one prints that the training stops, as one of several processes does.
        """
        self.received, self._waiting, self._says, self._store = None, True, says, None
        for number in numbers:
            before = signal.getsignal(number)
            try:
                signal.signal(number, self._receive)
            except ValueError:
                return
            self._before.setdefault(number, before)

    def share(self, trainer: Trainer) -> None:
        """Lets the ranks see each other's signals from now on; every rank must call it, the first time in a training.

        Through the store that they rendezvous with, which answers at once: no rank waits for another.
        """
        if self._store is None and trainer.world_size > 1 and distributed.is_initialized():
            name = trainer.strategy.broadcast(uuid.uuid4().hex)
            self._store = PrefixStore(f"lit_gans/signals/{name}", default_store().clone())

    def came(self) -> bool:
        """Returns whether a signal has come to any rank; the ranks may see it at different times."""
        if self._store is None:
            return self.received is not None
        if self.received is not None:
            self._store.set(_CAME, "")
        return self._store.check([_CAME])

    def again(self) -> None:
        """Installs the handlers again, unless a signal came or the training has ended."""
        for number in self._before if self._waiting else ():
            signal.signal(number, self._receive)

    def end(self) -> None:
        """Restores the handlers from before `start`."""
        self._waiting = False
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        noted = self._waiting
        self.end()  # a second signal takes effect immediately
        if noted:
            self.received = number
            if self._says:
                _say(number)
        else:  # installed once more by Lightning, after the end
            signal.raise_signal(number)


def _say(number: int) -> None:
    """Writes to stderr that the training stops: past Python's buffers, which a signal may interrupt."""
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    text = f"\n{name}: the training stops after this iteration, with a checkpoint; a second one stops it at once.\n"
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def requeue_signal(trainer: Trainer) -> int | None:
    """Returns the signal with which SLURM announces the end of a job that is to be queued again, or None."""
    environment = cluster_environment(trainer)
    if not isinstance(environment, SLURMEnvironment) or not environment.auto_requeue:
        return None
    return environment.requeue_signal


def requeue_job() -> None:
    """Queues this job of SLURM again; a failure is logged, as the checkpoint is written in any case."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        command = ["scontrol", "requeue", job]
        subprocess.run(command, check=True, capture_output=True, encoding="utf-8", errors="replace")
    except (OSError, subprocess.CalledProcessError) as error:
        output = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        logger.warning("job %s could not be queued again: %s %s", job, error, output)
    else:
        logger.info("job %s is queued again", job)
