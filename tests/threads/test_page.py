"""The page of known problems and the tests of this folder agree: one test a row, by its number."""

import re
from pathlib import Path

from tests.callbacks import test_ranks
from tests.docs.blocks import ROOT
from tests.strategies import test_average, test_manual_optimization, test_rank_positions

ROWS = dict(re.findall(r"^\| (\d+) \|.* \| (\w+) \|$", (ROOT / "docs/explain/known_problems.md").read_text(), re.M))
ELSEWHERE = {  # rows whose test is where its subject is; that of the stock tool is here if it is large
    12: test_manual_optimization.test_schedulers_that_never_step_give_a_warning,
    13: test_average.test_the_average_is_equal_under_every_strategy_without_a_gather_in_a_step,
    19: test_ranks.test_two_ranks_measure_what_one_does,
    20: test_rank_positions.test_ranks_that_train_different_networks_end,
}


def test_each_row_has_a_test_and_each_test_a_row():
    files = Path(__file__).parent.glob("test_*.py")
    numbers = [int(found) for file in files for found in re.findall(r"^def test_(\d\d)_", file.read_text(), re.M)]
    assert len(numbers) == len(set(numbers)), "one test a row"
    assert {int(row) for row in ROWS} == {*numbers, *ELSEWHERE} == set(range(1, 25))
    assert set(ROWS.values()) <= {"any", "own", "refused"}
