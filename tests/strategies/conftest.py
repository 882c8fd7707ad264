"""What several ranks train beyond one pass of parity is the tier `ranks`: other modules, options and checkpoints, and
broken strategies, which parity must find.
"""

from pathlib import Path

import pytest

OF_RANKS = {
    *("agreement", "alone", "average", "broken", "checkpoints", "comm_hooks", "grad_scaling", "lightning_cli"),
    *("lightning_packages", "mixed_precision", "nodes", "own_module", "several_optimizers", "sharded_checkpoints"),
    "statistics",
}


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        ours = here / "acceptance" in item.path.parents or (
            item.path.parent == here and item.path.stem.removeprefix("test_") in OF_RANKS
        )
        if ours and not any(map(item.get_closest_marker, ("slow", "faults", "cuda"))):
            item.add_marker("ranks")
