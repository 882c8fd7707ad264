"""Folders of sharded checkpoints, written by all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch.distributed as dist

from lit_gans.checkpoints.sharded import checksums, write_commit
from lit_gans.common.atomic import failed_write, remove, replace, unfinished


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

    Raises:
        FailedWrite: a file cannot be written; the new folder is removed and `path` stays as it was.
    """
    part = unfinished(path)
    try:
        yield from _replaced(part, path, strategy)
    except BaseException as error:
        with suppress(OSError):
            remove(part)
        from torch.distributed.checkpoint.api import CheckpointException  # slow to import

        if isinstance(error, (OSError, RuntimeError, CheckpointException)):
            raise failed_write(path, error) from error
        raise


def _replaced(part: Path, path: Path, strategy: _Ranks) -> Iterator[Path]:
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
