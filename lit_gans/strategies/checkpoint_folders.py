"""Folders of sharded checkpoints, written by all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch.strategies.strategy import Strategy

from lit_gans.common.atomic import remove, replace


@contextmanager
def replacing(path: Path, strategy: Strategy) -> Iterator[Path]:
    """Yields a new folder on all ranks, which replaces `path` once all ranks have written to it; see `replace`."""
    part = path.with_name(f"{path.name}.part")
    if strategy.is_global_zero:
        remove(part)
        part.mkdir(parents=True)
    strategy.barrier()
    yield part
    strategy.barrier()
    if strategy.is_global_zero:
        replace(part, path)
    strategy.barrier()
