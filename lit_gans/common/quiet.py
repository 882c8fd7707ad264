"""Screen output of the commands: silences third-party warnings that users cannot act on, shows our own notices."""

from __future__ import annotations

import logging
import os
import sys
import warnings

_NOTICES = (
    ".*Grad strides do not match bucket view strides.*",  # one-channel convolutions in channels_last, harmless
    ".*does not have many workers.*",  # data in memory is fastest without
    ".*is smaller than the logging interval.*",  # Lightning counts the interval across epochs, and logs all the same
    ".*isinstance\\(treespec, LeafSpec\\).*",  # Lightning 2.6 on torch 2.15
    ".*was deprecated in v4.* and will be removed in v5.*",  # Lightning 2.6 on jsonargparse 4.49
    ".*JSONARGPARSE_DEPRECATION_WARNINGS.*",
)
_RANKS = ("RANK", "SLURM_PROCID", "LOCAL_RANK")  # of torchrun, SLURM and Lightning's own launcher


def quiet() -> None:
    """Silences third-party warnings that users cannot act on and prints this package's log records to stderr, once.

    Records of level INFO are printed by rank 0 alone, those of level WARNING and above by every rank.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    for notice in _NOTICES:
        warnings.filterwarnings("ignore", message=f"(?s){notice}")
    ours = logging.getLogger("lit_gans")
    ours.setLevel(logging.INFO if _is_rank_zero() else logging.WARNING)
    if not any(isinstance(handler, _ToStderr) for handler in ours.handlers):
        ours.addHandler(_ToStderr())


class _ToStderr(logging.StreamHandler):
    """Writes to the current `sys.stderr`, as `logging.lastResort` does."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _is_rank_zero() -> bool:
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"
