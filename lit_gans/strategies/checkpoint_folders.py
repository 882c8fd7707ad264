"""Folders of sharded checkpoints, written by all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch.distributed as dist

from lit_gans.checkpoints.commit import checksums, write_commit
from lit_gans.common.atomic import remove, replace, unfinished


@runtime_checkable
class _Ranks(Protocol):
    """A strategy, as far as folders are concerned."""

    is_global_zero: bool
    global_rank: int
    world_size: int

    def barrier(self) -> None: ...


@contextmanager
def replacing(path: Path, strategy: _Ranks) -> Iterator[Path]:
    """Yields a new folder on all ranks, which replaces `path` once all ranks have written to it; see `replace`.

    The commit marker is written last; the ranks share the work of its checksums.
    """
    part = unfinished(path)
    if strategy.is_global_zero:
        remove(part)
        part.mkdir(parents=True)
    strategy.barrier()
    yield part
    strategy.barrier()
    shares = [checksums(part, strategy.global_rank, strategy.world_size)]
    if strategy.world_size > 1:
        own, shares = shares[0], [{}] * strategy.world_size
        dist.all_gather_object(shares, own)
    if strategy.is_global_zero:
        write_commit(part, {name: entry for share in shares for name, entry in share.items()})
        replace(part, path)
    strategy.barrier()
