"""Compares what the ranks train, so that ranks that disagree raise an error instead of waiting for each other.

Each rank numbers its events: iterations, backwards and steps of networks, and forward passes that gather weights. Event
n must be the same on every rank. If it differs, the collectives that follow wait forever, or mix what does not belong
together. A rank that is late has fewer events, and never different ones.

Before each collective, a rank publishes its latest events in the store that all ranks share, which waits for nobody. In
the first iterations it then reads those of its neighbors: whichever of two ranks that disagree comes later raises
before its collective begins. Reading is a round trip to the store, which answers at once whatever the neighbors do:
0.07 ms between two processes of a machine, so that a training with two networks spends some 20 ms in all. Later only
one iteration in `_EVERY` is compared, at its end. In between, ranks that disagree wait for the timeout of the process
group, and the events explain its error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from zlib import crc32

from torch.distributed import PrefixStore, Store

_TAIL = 16  # events that a rank publishes, more than two ranks are apart at a collective
_EVERY = 100  # so many iterations are compared at each collective, and then one in so many at its end

ADVICE = (
    "Every rank must train the same networks in the same order: decide from what is the same on all ranks, such as the"
    " iteration or a value of `self.trainer.strategy.reduce`."
)


class RanksDisagree(RuntimeError):
    """The ranks have not trained the same networks in the same order."""


class Positions:
    """The events of this rank.

    Args:
        store: shared by all ranks; `None` compares nothing.
        rank: of this process.
        world_size: number of ranks.
        name: one that no other training has, the same on all ranks.
    """

    def __init__(self, store: Store | None = None, rank: int = 0, world_size: int = 1, name: str = "") -> None:
        self._store = None if store is None or world_size == 1 else PrefixStore(f"lit_gans/positions/{name}", store)
        self._rank, self._neighbors = rank, sorted({(rank - 1) % world_size, (rank + 1) % world_size} - {rank})
        self._events: deque[str] = deque(maxlen=_TAIL)
        self._number = self._digest = self._iteration = self._iterations = 0
        self.publish()

    def begin(self, iteration: int) -> None:
        """Notes the start of an iteration."""
        self._iteration, self._iterations = iteration, self._iterations + 1
        self.note("the start")

    def note(self, what: str) -> None:
        """Notes an event in the current iteration."""
        event = f"in iteration {self._iteration} at {what}"
        self._number, self._digest = self._number + 1, crc32(event.encode(), self._digest)
        self._events.append(f"{self._number} {self._digest} {event}")

    def reach(self, what: str) -> None:
        """Notes an event that a collective follows.

        Raises:
            RanksDisagree: another rank is at another event.
        """
        self.note(what)
        self.publish()
        if self._iterations <= _EVERY:
            self.compare()

    def end(self) -> None:
        """Notes the end of an iteration, which a collective of Lightning's loop follows.

        Raises:
            RanksDisagree: the ranks have not trained the same networks in the same order.
        """
        self.reach("the end")
        if self._iterations % _EVERY == 0:
            self.compare()

    def publish(self) -> None:
        """Lets the other ranks see the latest events."""
        if self._store is not None:
            self._store.set(str(self._rank), "\n".join(self._events))

    def compare(self) -> None:
        """Raises `RanksDisagree` if a neighbor published another event with the number of one of this rank's."""
        if self._store is None:
            return
        own = _by_number(self._events)
        for rank, tail in zip(self._neighbors, self._store.multi_get([*map(str, self._neighbors)]), strict=True):
            others = _by_number(tail.decode().splitlines())
            for number in sorted(own.keys() & others.keys()):
                if own[number] != others[number]:
                    places = sorted([(self._rank, own[number][1]), (rank, others[number][1])])
                    where = "; ".join(f"rank {rank} {place}" for rank, place in places)
                    earlier = ", but after different events" if own[number][1] == others[number][1] else ""
                    raise RanksDisagree(f"The ranks disagree: {where}{earlier}. {ADVICE}")


def _by_number(events: Iterable[str]) -> dict[int, tuple[str, str]]:
    """Returns the digest and the place of each event."""
    split = (event.split(" ", 2) for event in events)
    return {int(number): (digest, place) for number, digest, place in split}
