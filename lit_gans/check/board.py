"""Board on which the ranks publish records. It uses a torch.distributed store, and does not synchronize the ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore

from lit_gans.check.findings import RankRecords
from lit_gans.check.records import Call, End, State, StepStart, loaded_step
from lit_gans.common._compat.torch import default_store
from lit_gans.common.rank_zero import rank_and_world_size

_WAIT = timedelta(seconds=30)


class Board:
    """Publishes the records of this rank, and reads the records of all ranks.

    Args:
        store: store that all ranks share.
        rank, world_size: rank of this process, and number of processes.
        name: name of the check.
    """

    def __init__(self, store: Store, rank: int, world_size: int, name: str) -> None:
        self.store, self.rank, self.world_size = PrefixStore(f"lit_gans/{name}", store), rank, world_size

    def publish(self, name: str, record: bytes) -> None:
        """Publishes a record of this rank."""
        self.store.set(f"{self.rank}/{name}", record)  # type: ignore[arg-type]  # bytes are documented

    def read(self, rank: int, name: str) -> bytes | None:
        """Returns a record of a rank, or None if the rank has not published it."""
        key = f"{rank}/{name}"
        return self.store.get(key) if self.store.check([key]) else None

    def wait(self, rank: int, name: str, seconds: float) -> bool:
        """Waits for a record of a rank, and returns whether it was published in time."""
        try:
            self.store.wait([f"{rank}/{name}"], timedelta(seconds=seconds))
        except Exception:  # torch raises no specific exception for this timeout
            return False
        return True


def board(name: str) -> Board | None:
    """Returns the board of the check called `name`. Returns None on a single process, or if no store exists yet.

    The board uses the store of torchrun, or otherwise of the default process group.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and world_size > 1:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_WAIT)
        return Board(store, int(os.environ["RANK"]), world_size, name)
    rank, world_size = rank_and_world_size()
    return None if world_size == 1 else Board(default_store(), rank, world_size, name)


def events_of(shared: Board, rank: int) -> Iterator[StepStart]:
    """Yields the optimizer steps that a rank has published so far, in their order."""
    for number in count():
        text = shared.read(rank, f"event/{number}")
        if text is None:
            return
        yield StepStart(**_loaded(text))


def counts_of(shared: Board, rank: int) -> dict[str, int]:
    """Returns how often a rank has stepped each optimizer so far."""
    return _loaded(shared.read(rank, "counts"))


def collected(
    shared: Board, steps: int, states: Sequence[str], calls: Mapping[str, int], patience: float
) -> list[RankRecords]:
    """Returns the records of all ranks.

    Args:
        shared: the board.
        steps: number of recorded steps per optimizer.
        states: names of the states that this rank has published.
        calls: number of inputs that this rank has published, by the name of the network.
        patience: maximum time to wait for the end of each rank, in seconds.
    """
    ranks = []
    for rank in range(shared.world_size):
        has_ended = shared.wait(rank, "end", patience)
        records = RankRecords(events=[*events_of(shared, rank)], counts=counts_of(shared, rank))
        if has_ended:
            records.end = End(**_loaded(shared.read(rank, "end")))
        for name in dict.fromkeys(event.optimizer for event in records.events):
            texts = (shared.read(rank, f"step/{name}/{number}") for number in range(1, steps + 1))
            records.steps[name] = [loaded_step(text) for text in texts if text is not None]
        for name, number in calls.items():
            found = (shared.read(rank, f"call/{name}/{index}") for index in range(number))
            records.calls[name] = [Call(**_loaded(text)) for text in found if text is not None]
        ranks.append(records)
    for name in reversed(states):
        published = [shared.read(rank, name) for rank in range(shared.world_size)]
        if None not in published:
            for records, text in zip(ranks, published, strict=True):
                records.state = State(**_loaded(text))
            break
    return ranks


def _loaded(text: bytes | None) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(text or b"{}")
    return values
