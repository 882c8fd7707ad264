"""Whether the processes of a training script train one model: `torchrun --nproc_per_node 2 -m lit_gans.check train.py`.

Needs torch alone. The script runs unchanged, whatever loop it has. Each rank records its first optimizer steps
(`recorder.py`) and publishes them in the store of the process group, which no rank waits for (`board.py`); rank 0
compares the records of all ranks (`findings.py`).
"""

from lit_gans.check.session import check_ranks

__all__ = ["check_ranks"]
