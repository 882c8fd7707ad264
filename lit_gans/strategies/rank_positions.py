"""Compares the sequence of training events between ranks, so that ranks that disagree raise an error and do not hang.

Each rank numbers its events: iterations, backward passes and optimizer steps of networks, and forward passes that
gather weights. Event n must be the same on every rank. If event n differs, the following collectives wait forever or
combine tensors that do not belong together. A slow rank has recorded fewer events than the others, but never different
events.

Before each collective, a rank publishes its latest events in a store that all ranks share. Publishing does not block,
and takes about 15 microseconds. It cannot be done later, for example by a thread: gloo and NCCL abort the process in
which collectives do not match, and its last event would be lost.

In the first `_EVERY` iterations, the rank then reads the events of its neighbors. If two ranks disagree, the later one
raises an error before its collective begins. Reading is one round trip to the store, which answers immediately,
whatever the neighbors are doing. It takes 0.07 ms between two processes on one machine, about 20 ms in total for a
training run with two networks. Afterwards, the ranks compare their events only at the end of every `_EVERY` iterations.
If ranks disagree between two comparisons, they wait for each other until the process group's timeout. The recorded
events then explain the timeout error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from zlib import crc32

from torch.distributed import PrefixStore, Store

_TAIL = 16  # number of latest events that a rank publishes; at a collective, two ranks are always fewer events apart
_EVERY = 100  # compare at each collective in the first iterations, and then at the end of every 100 iterations

ADVICE = (
    "Every rank must train the same networks in the same order: base such decisions on values that are equal on all"
    " ranks, such as the iteration or a value returned by `self.trainer.strategy.reduce`."
)


class RanksDisagree(RuntimeError):
    """The ranks have not trained the same networks in the same order."""


class Positions:
    """Records the events of this rank and compares them with the events of its neighbors.

    Args:
        store: store that all ranks share; `None` disables the comparison.
        rank: rank of this process.
        world_size: number of ranks.
        name: unique name of the training run, which is the same on all ranks.
    """

    def __init__(self, store: Store | None = None, rank: int = 0, world_size: int = 1, name: str = "") -> None:
        self._store = None if store is None or world_size == 1 else PrefixStore(f"lit_gans/positions/{name}", store)
        self._rank, self._neighbors = rank, sorted({(rank - 1) % world_size, (rank + 1) % world_size} - {rank})
        self._events: deque[str] = deque(maxlen=_TAIL)
        self._number = self._digest = self._iteration = self._iterations = 0
        self.publish()

    def begin(self, iteration: int) -> None:
        """Records the start of an iteration."""
        self._iteration, self._iterations = iteration, self._iterations + 1
        self.note("the start")

    def note(self, what: str) -> None:
        """Records an event in the current iteration."""
        event = f"in iteration {self._iteration} at {what}"
        self._number, self._digest = self._number + 1, crc32(event.encode(), self._digest)
        self._events.append(f"{self._number} {self._digest} {event}")

    def reach(self, what: str) -> None:
        """Records and publishes an event that is followed by a collective.

        Raises:
            RanksDisagree: a neighbor has recorded a different event.
        """
        self.note(what)
        self.publish()
        if self._iterations <= _EVERY:
            self.compare()

    def end(self) -> None:
        """Records the end of an iteration, which is followed by a collective of Lightning's training loop.

        Raises:
            RanksDisagree: the ranks have not trained the same networks in the same order.
        """
        self.reach("the end")
        if self._iterations % _EVERY == 0:
            self.compare()

    def publish(self) -> None:
        """Publishes the latest events to the other ranks."""
        if self._store is not None:
            self._store.set(str(self._rank), "\n".join(self._events))

    def compare(self) -> None:
        """Compares the events with the latest events that the neighbors have published.

        Raises:
            RanksDisagree: an event differs from a neighbor's event of the same number.
        """
        if self._store is None:
            return
        local = _events_by_number(self._events)
        for rank, tail in zip(self._neighbors, self._store.multi_get([*map(str, self._neighbors)]), strict=True):
            remote = _events_by_number(tail.decode().splitlines())
            for number in sorted(local.keys() & remote.keys()):
                if local[number] != remote[number]:
                    pair = sorted([(self._rank, local[number][1]), (rank, remote[number][1])])
                    where = "; ".join(f"rank {rank} {event}" for rank, event in pair)
                    earlier = ", but after different events" if local[number][1] == remote[number][1] else ""
                    raise RanksDisagree(f"The ranks disagree: {where}{earlier}. {ADVICE}")


def _events_by_number(lines: Iterable[str]) -> dict[int, tuple[str, str]]:
    """Maps the number of each event to the digest of all events so far and the description of the event."""
    split = (line.split(" ", 2) for line in lines)
    return {int(number): (digest, event) for number, digest, event in split}
