"""Ends ranks that disagree about what to train, instead of leaving them to wait for each other until a timeout.

Each rank counts its events: iterations, backwards and steps of networks, and forward passes that gather weights. An
event with the same number must be the same on every rank; otherwise the collectives that follow never match, or match
wrongly. A thread compares the events of all ranks, so that training only records them. A rank that is late has fewer
events, and never different ones.

Events are recorded in files, too, since gloo aborts a process whose collective does not match.
"""

from __future__ import annotations

import logging
import mmap
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from torch.distributed import PrefixStore, Store

from lit_gans.strategies.position_folders import hold, sweep
from lit_gans.strategies.process_lifetime import end_process

log = logging.getLogger(__name__)

_HISTORY = 4096  # events that a rank remembers, more than ranks can be apart
_TAIL, _BYTES = 64, 160  # events that a rank shows to others, and the bytes of each
_TEXT = _BYTES - 32  # of these, bytes of its iteration and name
_PERIOD, _PERIOD_PER_RANK = 0.5, 0.01  # seconds between two comparisons
_PATIENCE = 3  # periods after which every rank has published what it did

ADVICE = (
    "Every rank must train the same networks in the same order: decide from what is the same on all ranks, such as the"
    " iteration or a value of `self.trainer.strategy.reduce`."
)


class RanksDisagree(RuntimeError):
    """The ranks have not trained the same networks in the same order."""


class Event(NamedTuple):
    """What a rank did: its number, a digest of all events so far, and what it was in which iteration."""

    number: int
    digest: int
    iteration: int
    what: str


class Positions:
    """The events of this rank."""

    def __init__(self) -> None:
        self.tail: bytearray | mmap.mmap = bytearray(_TAIL * _BYTES)
        self.restart()

    def restart(self, file: Path | None = None) -> None:
        """Forgets all events, as every rank must at the same time, and records the next ones in a file."""
        self._events: deque[tuple[int, int, int, str]] = deque(maxlen=_HISTORY)
        self._number = self._digest = self._iteration = 0
        self.tail = bytearray(_TAIL * _BYTES)
        if file is not None:
            file.write_bytes(self.tail)
            with file.open("r+b") as opened:
                hold(opened)  # the map has a copy of the descriptor, and with it the lock
                self.tail = mmap.mmap(opened.fileno(), 0)

    def begin(self, iteration: int) -> None:
        """Notes the start of an iteration."""
        self._iteration = iteration
        self.note("the start")

    def note(self, what: str) -> None:
        """Notes an event in the current iteration."""
        text = f"{self._iteration} {what}"[:_TEXT].encode("ascii", "replace")
        self._digest = crc32(text, self._digest)
        at = self._number % _TAIL * _BYTES
        self._number += 1
        self._events.append((self._number, self._digest, self._iteration, what))
        self.tail[at : at + _BYTES] = (b"%d %d %b" % (self._number, self._digest, text)).ljust(_BYTES)

    def events(self) -> list[Event]:
        """Returns the latest events; also callable from another thread."""
        return [Event(*event) for event in self._events.copy()]


def read(tail: bytes) -> list[Event]:
    """Returns the events that a rank shows."""
    found = []
    for at in range(0, len(tail), _BYTES):
        number, digest, iteration, what = [*tail[at : at + _BYTES].decode().split(" ", 3), "", "", ""][:4]
        if number.isdigit():
            found.append(Event(int(number), int(digest), int(iteration), what.rstrip()))
    return sorted(found)


def disagreement(events: Mapping[int, Sequence[Event]]) -> str | None:
    """Returns a sentence about the first event that is not the same on all ranks, given each rank's latest events."""
    at: dict[int, dict[int, Event]] = {}
    for rank, latest in events.items():
        for event in latest:
            at.setdefault(event.number, {})[rank] = event
    for number in sorted(at):
        if len({event.digest for event in at[number].values()}) > 1:
            return _sentence(at[number])
    return None


def _sentence(differing: Mapping[int, Event]) -> str:
    places: dict[tuple[int, int, str], list[int]] = {}
    for rank, event in sorted(differing.items()):
        places.setdefault((event.digest, event.iteration, event.what), []).append(rank)
    where = [
        f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))} in iteration {iteration} at {what}"
        for (_, iteration, what), ranks in places.items()
    ]
    earlier = ", but after different events" if len({place[1:] for place in places}) == 1 else ""
    return f"The ranks disagree: {'; '.join(where)}{earlier}. {ADVICE}"


class PositionWatch:
    """A thread that compares the events of all ranks, and ends the process if they differ.

    Args:
        store: shared by all ranks.
        rank: of this process.
        world_size: number of ranks.
        positions: the events of this rank.
        name: a name that no other training has, the same on all ranks.
        end: ends this process.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        positions: Positions,
        name: str,
        end: Callable[[], None] = end_process,
    ) -> None:
        # its own connection: a thread that waits for the store blocks all others that use the same one
        self._store = PrefixStore(f"lit_gans/positions/{name}", store.clone())
        self._rank, self._keys = rank, [f"at/{other}" for other in range(world_size)]
        folders = Path(tempfile.gettempdir())
        if rank == 0:
            sweep(folders, "lit_gans_positions_*")
        self._folder = folders / f"lit_gans_positions_{name}"
        self._folder.mkdir(0o700, exist_ok=True)
        positions.restart(self._folder / str(rank))
        self._positions, self._end = positions, end
        self._period = _PERIOD + _PERIOD_PER_RANK * world_size
        self._stopped = threading.Event()
        self.rounds = 0  # comparisons so far
        self._thread = threading.Thread(target=self._run, daemon=True, name="rank-positions")
        self._thread.start()

    def finish(self, barrier: Callable[[], None]) -> None:
        """Compares the events of all ranks at the end of a training.

        Raises:
            RanksDisagree: they differ.
        """
        self._publish()
        barrier()
        published = self._published()
        barrier()  # the store ends with the process that serves it, which must not be before all have read
        sentence = self._disagreement(published)
        if sentence is not None:
            raise RanksDisagree(sentence)

    def explain(self) -> None:
        """Logs whether a disagreement is the reason of an error; may end the process."""
        tails = {int(file.name): file.read_bytes() for file in self._folder.glob("*")}
        sentence = self._disagreement(tails)
        if sentence is not None:
            log.error(sentence)
            shutil.rmtree(self._folder, ignore_errors=True)
        elif len(tails) < len(self._keys):  # a rank of another machine may have the reason
            self._thread.join(_PATIENCE * self._period)

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self._thread.join(self._period)
        with suppress(OSError):
            (self._folder / str(self._rank)).unlink()
            self._folder.rmdir()  # if it is empty

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._period):
                self._compare()
        except RuntimeError:  # the store has ended with the process that serves it
            log.debug("No store any more: positions are not compared.", exc_info=True)

    def _publish(self) -> None:
        self._store.set(self._keys[self._rank], bytes(self._positions.tail).decode())

    def _published(self) -> dict[int, bytes]:
        return dict(enumerate(self._store.multi_get(self._keys)))

    def _compare(self) -> None:
        self._publish()
        if self._rank == 0 and self._store.check(self._keys):
            sentence = self._disagreement(self._published())
            if sentence is not None:
                self._store.set("ended", "")
                log.error(sentence)
                self._wait_for_others()
                self._exit()
        elif self._rank and self._store.check(["ended"]):
            self._store.add("seen", 1)
            self._exit()
        self.rounds += 1

    def _disagreement(self, tails: Mapping[int, bytes]) -> str | None:
        events = {rank: read(tail) for rank, tail in tails.items() if rank != self._rank}
        first = min((latest[0].number for latest in events.values() if latest), default=0)
        own = [event for event in self._positions.events() if event.number >= first]
        return disagreement(events | {self._rank: own})

    def _wait_for_others(self) -> None:
        """Lets the others see the end, since the store may end with this process."""
        for _ in range(10 * _PATIENCE):
            if self._store.add("seen", 0) >= len(self._keys) - 1:
                return
            self._stopped.wait(self._period / 10)

    def _exit(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._end()
