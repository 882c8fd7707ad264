"""Raw FSDP2, raw DeepSpeed and closures: right loops have no fault, and gradients that no rank averages are found."""

from dataclasses import asdict

import pytest
import torch

from lit_gans.check import check_ranks
from tests.check.raw_loops import LOOPS, STEPS
from tests.strategies import ranks

SHARDED = {"fsdp", "deepspeed_2"}

pytestmark = pytest.mark.ranks


def findings(kind, is_right):
    """Trains with a loop, and returns what this rank has found, and the watched steps."""
    torch.set_num_threads(1)
    with check_ranks() as check:
        LOOPS[kind](is_right)
    return [asdict(finding) | {"is_fault": finding.is_fault} for finding in check.findings], check.watched


@pytest.mark.parametrize("kind", LOOPS)
def test_a_right_loop_has_no_fault_and_shards_are_named(tmp_path, kind):
    found, watched = ranks.run(f"{__name__}.findings", tmp_path, kind=kind, is_right=True)[0]
    assert [finding["kind"] for finding in found] == ["skipped"] * 2 * (kind in SHARDED)
    assert [*watched.values()] == [STEPS, STEPS]


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed_0", "closures"])
def test_gradients_that_no_rank_averages_are_found_by_their_network(tmp_path, kind):
    """ZeRO from stage 2 on has no backward pass without an average."""
    found, _ = ranks.run(f"{__name__}.findings", tmp_path, kind=kind, is_right=False)[0]
    (fault,) = (finding for finding in found if finding["is_fault"])
    assert fault["kind"] == "gradients_not_averaged"
    assert "discriminator" in fault["where"]
