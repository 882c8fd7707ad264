"""Lets the ranks agree to stop or to save at the same iteration."""

from __future__ import annotations

import torch
from lightning.pytorch import Trainer

from lit_gans.training.callback import is_last_iteration

_EXCHANGE_SECONDS = 1.0  # approximate training time between two exchanges, in seconds


class RankExchange:
    """Exchanges signals and due saves between the ranks, about once a second and at the last iteration.

    An exchange synchronizes with the device, so it does not take place in every iteration. At every exchange, the ranks
    also agree on the iteration of the next exchange.
    """

    def __init__(self) -> None:
        self._next = 1  # iteration of the next exchange
        self._interval = 1  # number of iterations from the last exchange to the next one
        self._exchanged_at = 0.0  # time of the last exchange, in seconds

    def start(self, trainer: Trainer, now: float) -> None:
        """Schedules an exchange at the first iteration of a run. `now` is the current time in seconds."""
        self._next, self._interval, self._exchanged_at = trainer.global_step + 1, 1, now

    def make_due(self, trainer: Trainer) -> None:
        """Schedules an exchange at the current iteration. All ranks must call this method."""
        self._next = trainer.global_step

    def agree(self, trainer: Trainer, now: float, signal: int | None, is_save_due: bool) -> tuple[int | None, bool]:
        """Returns a signal that any rank has received, and whether a save is due. Rank 0 decides about saves.

        Both values are equal on all ranks. Between two exchanges, the values are None and False.

        Args:
            trainer: the trainer.
            now: current time in seconds.
            signal: number of the signal that this rank has received, or None without a signal.
            is_save_due: whether a save is due on this rank.
        """
        if trainer.world_size == 1:
            return signal, is_save_due
        step = trainer.global_step
        if step < self._next and not is_last_iteration(trainer):
            return None, False
        interval = int(self._interval * _EXCHANGE_SECONDS / max(now - self._exchanged_at, 1e-9))
        # the interval at most doubles, because the next iterations might be much slower than a few fast iterations
        interval = max(1, min(interval, 2 * self._interval))
        # the maximum over negative intervals is the negative of the smallest interval
        local = [signal or 0, int(is_save_due and trainer.is_global_zero), -interval]
        values = trainer.strategy.reduce(torch.tensor(local, device=trainer.strategy.root_device), reduce_op="max")
        number, is_due, negative = values.tolist()
        self._exchanged_at, self._interval, self._next = now, -negative, step - negative
        return number or None, bool(is_due)
