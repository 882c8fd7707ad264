"""The tests' own launcher of ranks."""

import os
import signal
import time

from tests.strategies import ranks


def fail_alone():
    if os.environ["RANK"] == "1":
        raise ValueError("rank 1 says why")
    time.sleep(600)


def test_a_failed_rank_ends_the_others_and_shows_its_error(tmp_path):
    codes, printed, _ = ranks.start(f"{__name__}.fail_alone", tmp_path, ranks.environments(2), 0.5)
    assert codes == [-signal.SIGKILL, 1]
    assert "ValueError: rank 1 says why" in printed[1]
