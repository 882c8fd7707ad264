"""Modules of other projects train on two ranks what they train on one process, where they are installed."""

from importlib.util import find_spec

import pytest

from . import ranks
from .foreign.train import DEEPSPEED, FOREIGN, TRAIN, difference

pytestmark = pytest.mark.slow


def installed(name):
    try:
        return find_spec("pytorch_lightning") is not None and find_spec(name) is not None
    except ModuleNotFoundError:  # of a parent
        return False


@pytest.mark.parametrize("name", FOREIGN)
def test_two_ranks_train_the_weights_of_one_process(tmp_path, name):
    if not installed(FOREIGN[name][0]):
        pytest.skip(f"{FOREIGN[name][0]} is not installed")
    for exact, strategies, most in ((True, ("network_ddp", "network_fsdp"), 1e-9), (False, (DEEPSPEED,), 1e-6)):
        [alone] = ranks.run(TRAIN, tmp_path, 1, name=name, strategies=("auto",), exact=exact)
        for found in ranks.run(TRAIN, tmp_path, name=name, strategies=strategies, exact=exact):
            for strategy in strategies:
                assert difference(found[strategy], alone["auto"]) <= most < alone["auto"]["moved"] / 100, strategy
