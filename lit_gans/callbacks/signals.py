"""Handles signals that stop the training on all ranks at the end of an iteration."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from types import FrameType
from typing import Any

from lightning.pytorch import Trainer
from torch import distributed
from torch.distributed import PrefixStore, Store

from lit_gans.common._compat.torch import default_store

_RECEIVED_KEY = "came"  # key that a rank sets in the store when it has received a signal


class Abandoned(Exception):
    """Raised when a signal interrupts a measurement before its values are known."""


class StopSignals:
    """Signal handlers that record the first signal. A second signal takes effect immediately.

    Lightning installs its own handlers after the `setup` hooks, and restores the previous handlers when the training
    ends. The handlers of this class are therefore installed twice, before and after Lightning installs its handlers. If
    Lightning restores one of these handlers after the training, the handler passes the signal on to the original
    handler.

    Attributes:
        received: number of the received signal, or None if no signal was received.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._is_waiting = self._prints = False
        self._original_handlers: dict[int, Any] = {}
        self._store: Store | None = None  # shared by the ranks of this run; None on a single process

    def start(self, *numbers: int, says: bool = True) -> None:
        """Installs the handlers. Does nothing outside the main thread, because Python handles signals only there.

        Args:
            *numbers: numbers of the signals.
            says: whether to print at the first signal that the training stops; use True on only one of several
                processes.
        """
        self.received, self._is_waiting, self._prints, self._store = None, True, says, None
        for number in numbers:
            handler = signal.getsignal(number)
            try:
                signal.signal(number, self._receive)
            except ValueError:
                return
            if handler != self._receive:  # Lightning restores this handler after a training
                self._original_handlers[number] = handler

    def share(self, trainer: Trainer) -> None:
        """Makes signals visible to all ranks from now on. All ranks must make the first call of a run together.

        The ranks communicate through the store of their rendezvous, which replies immediately, so that no rank waits
        for another rank.
        """
        if self._store is None and trainer.world_size > 1 and distributed.is_initialized():
            name = trainer.strategy.broadcast(uuid.uuid4().hex)
            self._store = PrefixStore(f"lit_gans/signals/{name}", default_store().clone())

    def came(self) -> bool:
        """Returns whether any rank has received a signal. The ranks might notice the signal at different times."""
        if self._store is None:
            return self.received is not None
        if self.received is not None:
            self._store.set(_RECEIVED_KEY, "")
        return self._store.check([_RECEIVED_KEY])

    def again(self) -> None:
        """Reinstalls the handlers, unless a signal was received or the training has ended."""
        for number in self._original_handlers if self._is_waiting else ():
            signal.signal(number, self._receive)

    def end(self) -> None:
        """Restores the handlers that `start` replaced, unless other handlers have replaced these in turn."""
        self._is_waiting = False
        for number, handler in self._original_handlers.items():
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_first = self._is_waiting
        self.end()  # so that a second signal takes effect immediately
        if is_first:
            self.received = number
            if self._prints:
                _print_stopping(number)
        else:  # Lightning has restored this handler after the training
            signal.raise_signal(number)


def _print_stopping(number: int) -> None:
    """Prints to stderr that the training stops.

    Writes to the file descriptor, because the signal may have interrupted a write to Python's buffers.
    """
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    text = f"\n{name}: the training stops after this iteration, with a checkpoint; a second one stops it at once.\n"
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))
