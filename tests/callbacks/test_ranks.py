"""Two processes measure what one does, whatever their shares of the images."""

import math

import pytest

from tests.callbacks import cells
from tests.strategies.ranks import run

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(
    ("measure", "num_samples"),
    # where there are 1 and 8, rank 1 has none
    [("modes", 101), ("modes", 1), ("pairs", 30), ("pairs", 8), ("reconstructions", 9), ("reconstructions", 1)],
)
def test_two_ranks_measure_what_one_does(measure, num_samples, tmp_path):
    alone = getattr(cells, measure)(num_samples, world_size=1)
    found = run(f"tests.callbacks.cells.{measure}", tmp_path, num_samples=num_samples)
    may_be_zero = ("metric/modes_covered", "metric/ssim")
    assert all(math.isfinite(value) and (value > 0 or name in may_be_zero) for name, value in alone.items())
    assert found == [pytest.approx(alone, rel=1e-6)] * 2


@pytest.mark.parametrize("strategy", ["network_ddp", "network_fsdp", "network_deepspeed_stage_3"])
def test_networks_in_shards_are_measured_as_unsharded_ones(strategy, tmp_path):
    alone = cells.scores(61, world_size=1)
    assert alone["metric/fid_digits"] > 1
    # the spread of the Inception Score of noise is a difference of rounding errors
    expected = pytest.approx(alone, rel=1e-6, abs=1e-6)
    assert run("tests.callbacks.cells.scores", tmp_path, num_samples=61, strategy=strategy) == [expected] * 2
