"""Whether the processes of a training script train one model: `torchrun --nproc_per_node 2 -m lit_gans.check train.py`.

Needs torch alone. The script runs unchanged, whatever loop it has. Each rank records its first optimizer steps
(`recorder.py`) and publishes them in the store of the process group, which no rank waits for (`board.py`); rank 0
compares the records of all ranks (`findings.py`).
"""

from typing import TYPE_CHECKING, Any

from lit_gans.check.session import check_ranks

if TYPE_CHECKING:
    from lit_gans.check.callback import RankConsistency

__all__ = ["RankConsistency", "check_ranks"]


def __getattr__(name: str) -> Any:
    if name == "RankConsistency":  # the only part that needs Lightning
        from lit_gans.check.callback import RankConsistency

        return RankConsistency
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
