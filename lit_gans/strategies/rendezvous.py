"""torchrun starts a run again with the store that the processes before it used: what they wrote there must not be read.

A process that comes first would find the address of one that has ended (pytorch issue 135712). The count of restarts
does not tell the attempts apart: every node has its own. So the ranks of an attempt meet first.
"""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from functools import cache

from torch.distributed import PrefixStore, Store, TCPStore

_WAITS = timedelta(minutes=10)  # for the other ranks to start
_POLL = 0.05  # seconds


@cache
def attempt_store() -> Store | None:
    """Returns torchrun's store under a name that only the processes of this attempt know, None without torchrun.

    Every rank must call it.

    Raises:
        TimeoutError: not all ranks have started within 10 minutes.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = PrefixStore("lit_gans", store)
    return PrefixStore(rendezvous(store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), store)


def rendezvous(store: Store, rank: int, ranks: int, waits: timedelta = _WAITS) -> str:
    """Returns the same new name on all ranks that are alive, whatever earlier ones left in the store.

    Each rank shows a name of its own. Rank 0 shows all that it sees, until each rank has answered with rank 0's name;
    a rank answers where it finds its own among them.
    """
    name, until = uuid.uuid4().hex, time.monotonic() + waits.total_seconds()
    store.set(f"here/{rank}", name)
    answers = {other: f"{name}/{other}" for other in range(1, ranks)}
    while True:
        if rank == 0:
            answers = {other: key for other, key in answers.items() if not store.check([key])}
            if not answers:
                return name
            seen = [f"here/{other}" for other in range(ranks)]
            store.set("seen", ",".join(store.get(key).decode() if store.check([key]) else "" for key in seen))
        elif store.check(["seen"]):
            names = store.get("seen").decode().split(",")
            if names[rank] == name:
                store.set(f"{names[0]}/{rank}", "")
                return names[0]
        if time.monotonic() > until:
            missing = f"ranks {sorted(answers)} have" if rank == 0 else "rank 0 has"
            raise TimeoutError(f"{missing} not started within {waits.total_seconds():.0f} s of rank {rank}.")
        time.sleep(_POLL)
