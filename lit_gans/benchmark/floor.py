"""Cost of Lightning's own loop: an empty module in a `Trainer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn

from lit_gans.benchmark.calls import CallCounter
from lit_gans.benchmark.measure import quiet_trainer

_COUNTED = 2  # iterations
_NUM_CALLBACKS = 2  # without hooks; as many as the module in the race has


class _Empty(LightningModule):
    """A module with manual optimization and nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = nn.Parameter(torch.zeros(1))

    def training_step(self, data: Any, batch_idx: int) -> None:
        """Does nothing."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


class EmptyRun:
    """Runs iterations of an empty module in a `Trainer`, on the CPU, whose loader it is.

    Args:
        images: every batch.
        num_iterations: number of batches.
        between: runs before each iteration, not timed. Right after it, the caches of the processor hold what it used
            and not Lightning's loop, as in a training.

    Attributes:
        seconds, processor_seconds: of each iteration, from one request of the trainer for a batch to the next, by the
            clock and of this thread on a processor.
        counter: counts the calls of a few further iterations.
    """

    def __init__(self, images: Tensor, num_iterations: int, between: Callable[[], object]) -> None:
        self.images, self.num_iterations, self._between = images, num_iterations, between
        self.counter = CallCounter()
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []
        callbacks = [Callback() for _ in range(_NUM_CALLBACKS)]
        quiet_trainer("cpu", devices=1, max_epochs=1, callbacks=callbacks).fit(_Empty(), self)

    def __len__(self) -> int:
        return self.num_iterations + _COUNTED + 1

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.num_iterations):
            self._between()
            start, processor_start = time.perf_counter(), time.thread_time()
            yield self.images
            self.processor_seconds.append(time.thread_time() - processor_start)
            self.seconds.append(time.perf_counter() - start)
        for _ in range(_COUNTED + 1):  # the last ends the training
            with self.counter:
                yield self.images
