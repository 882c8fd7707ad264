"""Planted faults in five kinds of loops: each is found by its name, and the right loops have no finding."""

import gc
from dataclasses import asdict
from functools import cache

import pytest
import torch

from lit_gans.check import check_ranks
from tests.check.loops import LOOPS
from tests.check.planted import ALSO, FAULTS
from tests.strategies import ranks

RAISES = "this strategy raises an error before the step"
PREVENTED = {  # faults that a loop does not allow
    "lightning": {"unwrapped_network": "DistributedDataParallel has the whole module"},
    "ours": {"unwrapped_network": "there is no wrapper"}
    | dict.fromkeys(("never_synchronized", "skipped_by_one_rank", "overflow_on_one_rank"), RAISES)
    | dict.fromkeys(("other_order_on_one_rank", "other_discriminator_on_one_rank"), RAISES),
}
CASES = [(kind, fault) for kind in LOOPS for fault in FAULTS if fault not in PREVENTED.get(kind, {})]

pytestmark = pytest.mark.ranks


def findings(kind, faults):
    """Runs a kind of loop with each fault, and returns what this rank has found."""
    torch.set_num_threads(1)
    found = {}
    for fault in faults:
        gc.collect()  # averages of the run before are networks, too
        with check_ranks(name=f"{kind} with {fault}") as check:
            LOOPS[kind](fault)
        found[fault] = [asdict(finding) | {"is_fault": finding.is_fault} for finding in check.findings]
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    @cache
    def run(kind):
        faults = [None, *(fault for each, fault in CASES if each == kind)]
        return ranks.run(f"{__name__}.findings", tmp_path_factory.mktemp(kind), kind=kind, faults=faults)[0]

    return run


@pytest.mark.parametrize(("kind", "fault"), CASES)
def test_a_planted_fault_is_found_by_its_name(found, kind, fault):
    kinds = {finding["kind"] for finding in found(kind)[fault] if finding["is_fault"]}
    assert FAULTS[fault] in kinds
    assert kinds <= {FAULTS[fault]} | ALSO.get(fault, set())


@pytest.mark.parametrize("kind", LOOPS)
def test_a_right_loop_has_no_finding(found, kind):
    assert found(kind)[None] == []


def test_there_are_twenty_faults():
    assert len(FAULTS) >= 20
