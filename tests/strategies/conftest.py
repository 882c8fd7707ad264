"""What several ranks train beyond parity is the tier `ranks`: checkpoints, nodes, other packages and precisions, and
broken strategies, which parity must find.
"""

from pathlib import Path

import pytest

OF_RANKS = {
    *("agreement", "alone", "broken", "checkpoints", "lightning_cli", "lightning_packages", "mixed_precision", "nodes"),
    *("several_optimizers", "sharded_checkpoints"),
}


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        ours = item.path.parent == here and item.path.stem.removeprefix("test_") in OF_RANKS
        if ours and not any(map(item.get_closest_marker, ("slow", "faults", "cuda"))):
            item.add_marker("ranks")
