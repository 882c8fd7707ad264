"""Checks whether the ranks of a script train one model: `torchrun --nproc_per_node 2 -m lit_gans.check train.py`.

The check requires only torch. The script runs unchanged, whatever training loop it uses. Each rank records its first
optimizer steps (`recorder.py`) and publishes the records in the store of the process group (`board.py`). No rank waits
for another rank to publish. At the end, rank 0 compares the records of all ranks (`findings.py`).
"""

from typing import TYPE_CHECKING, Any

from lit_gans.check.session import check_ranks

if TYPE_CHECKING:
    from lit_gans.check.callback import RankConsistency

__all__ = ["RankConsistency", "check_ranks"]


def __getattr__(name: str) -> Any:
    if name == "RankConsistency":  # imported lazily, because only this class requires Lightning
        from lit_gans.check.callback import RankConsistency

        return RankConsistency
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
