"""What the command line keeps from the screen: notices of the libraries below that a user can do nothing about."""

from __future__ import annotations

import logging
import warnings

_NOTICES = (
    ".*Grad strides do not match bucket view strides.*",  # one-channel convolutions in channels_last, harmless
    ".*does not have many workers.*",  # data in memory is fastest without
    ".*isinstance\\(treespec, LeafSpec\\).*",  # Lightning 2.6 on torch 2.15
    ".*was deprecated in v4.* and will be removed in v5.*",  # Lightning 2.6 on jsonargparse 4.49
    ".*JSONARGPARSE_DEPRECATION_WARNINGS.*",
)


def quiet() -> None:
    """Leaves warnings that matter and silences the rest."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    for notice in _NOTICES:
        warnings.filterwarnings("ignore", message=f"(?s){notice}")
