"""Folders of sharded checkpoints, written by all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch.distributed as dist
from lightning.pytorch.strategies import ParallelStrategy

from lit_gans.checkpoints.sharded import checksums, write_commit
from lit_gans.common.atomic import failed_write, remove, replace, unfinished


@contextmanager
def replacing(path: Path, strategy: ParallelStrategy) -> Iterator[Path]:
    """Yields a new folder on all ranks, which replaces `path` once all ranks have written to it; see `replace`.

    The commit marker is written last; the ranks share the work of its checksums.

    Raises:
        FailedWrite: a file cannot be written; the new folder is removed and `path` stays as it was.
    """
    from torch.distributed.checkpoint.api import CheckpointException  # slow to import

    part = unfinished(path)
    try:
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
    except BaseException as error:
        with suppress(OSError):
            remove(part)
        if isinstance(error, (OSError, RuntimeError, CheckpointException)):
            raise failed_write(path, error) from error
        raise
