"""Configures the screen output of the commands: hides third-party warnings and prints the log records of lit_gans."""

from __future__ import annotations

import logging
import os
import sys
import warnings

_NOTICES = (
    ".*Grad strides do not match bucket view strides.*",  # harmless: one-channel convolutions in channels_last cause it
    ".*does not have many workers.*",  # in-memory data load fastest without workers
    ".*is smaller than the logging interval.*",  # wrong: Lightning counts the interval across epochs, and still logs
    ".*isinstance\\(treespec, LeafSpec\\).*",  # caused by Lightning 2.6 with torch 2.15
    ".*was deprecated in v4.* and will be removed in v5.*",  # caused by Lightning 2.6 with jsonargparse 4.51
    ".*JSONARGPARSE_DEPRECATION_WARNINGS.*",
)
_RANKS = ("RANK", "SLURM_PROCID", "LOCAL_RANK")  # set by torchrun, by SLURM and by Lightning's launcher


def quiet() -> None:
    """Hides third-party warnings that users cannot act on, and prints the log records of this package to stderr.

    Warnings are printed without the file and the line that raised them.

    Rank 0 prints records of level INFO and above. The other ranks only print records of level WARNING and above.
    Calling this function repeatedly does not print records twice.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    for notice in _NOTICES:
        warnings.filterwarnings("ignore", message=f"(?s){notice}")
    warnings.formatwarning = _without_source
    package_logger = logging.getLogger("lit_gans")
    package_logger.setLevel(logging.INFO if _is_rank_zero() else logging.WARNING)
    if not any(isinstance(handler, _ToStderr) for handler in package_logger.handlers):
        package_logger.addHandler(_ToStderr())


def _without_source(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Replaces `warnings.formatwarning`."""
    return f"warning: {message}\n"


class _ToStderr(logging.StreamHandler):
    """Log handler that writes to the current `sys.stderr`, even after a replacement, like `logging.lastResort`."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _is_rank_zero() -> bool:
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"
