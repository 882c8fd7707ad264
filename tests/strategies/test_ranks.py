"""The tests' own launcher of ranks."""

import os
import time

import pytest

from tests.strategies.ranks import run


def fail_alone():
    if os.environ["RANK"] == "1":
        raise ValueError("rank 1 says why")
    time.sleep(600)


def test_a_failed_rank_ends_the_others_and_shows_its_error(tmp_path):
    with pytest.raises(AssertionError, match="rank 1 says why"):
        run("tests.strategies.test_ranks.fail_alone", tmp_path)
