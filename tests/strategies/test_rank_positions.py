"""Ranks that disagree about what to train end with a sentence, and ranks that are late do not."""

import re

import pytest
import torch
from torch.distributed import HashStore

from lit_gans.strategies import rank_positions
from lit_gans.strategies.rank_positions import Positions, RanksDisagree

from . import ranks
from .disagreeing import AT, KINDS, STRATEGIES
from .own_modules import Own
from .test_own_module import train


@pytest.fixture
def follow():
    """Returns what the ranks say, each of which reaches the backwards of its networks, in turns of one iteration."""

    def run(*of_ranks):
        store = HashStore()
        positions = [Positions(store, rank, len(of_ranks)) for rank in range(len(of_ranks))]
        for iteration in range(max(map(len, of_ranks))):
            for rank, iterations in enumerate(of_ranks):
                if iteration < len(iterations):
                    positions[rank].begin(iteration)
                    for network in iterations[iteration].split():
                        positions[rank].reach(f"the backward of {network}")
                    positions[rank].end()
        return positions

    return run


def test_ranks_agree_where_one_is_late(follow):
    follow(["d g", "d g"], ["d g"], ["d g", "d g"])
    follow(["d g"] * 30, [])


@pytest.mark.parametrize(
    ("of_ranks", "sentence"),
    [
        ([["d g", "d g"], ["d g", "g"]], "rank 0 in iteration 1 at the backward of d; rank 1 in iteration 1 at the ba"),
        (
            [["d g", "d g"], ["d g", "", "d"]],
            "rank 0 in iteration 1 at the backward of d; rank 1 in iteration 1 at the",
        ),
        ([["d", "d"], ["d", "d"], ["d", "g"]], "rank 0 in iteration 1 at the backward of d; rank 2 in iteration 1 at"),
        ([["d g"] * 2, ["g d"] * 2], "rank 0 in iteration 0 at the backward of d; rank 1 in iteration 0 at the backw"),
    ],
)
def test_the_first_different_event_is_named(follow, of_ranks, sentence):
    with pytest.raises(RanksDisagree, match=sentence):
        follow(*of_ranks)


def test_a_difference_before_all_events_that_are_known_is_found(follow, monkeypatch):
    monkeypatch.setattr(Positions, "compare", lambda positions: None)
    one, _ = follow(*([first, *["d g"] * 29] for first in ("d g", "g d")))
    monkeypatch.undo()
    with pytest.raises(RanksDisagree, match=r"in iteration \d+ at .*, but after different events"):
        one.compare()


def test_a_reader_waits_for_the_store_in_few_iterations(monkeypatch):
    monkeypatch.setattr(rank_positions, "_EVERY", 10)
    compared, store = [], HashStore()
    Positions(store, 1, 2)
    positions = Positions(store, 0, 2)
    monkeypatch.setattr(positions, "compare", lambda: compared.append(iteration))
    for iteration in range(30):
        positions.begin(iteration)
        positions.reach("the backward of d")
        positions.end()
    assert compared == [*sorted([*range(10)] * 2), 9, 19, 29]
    assert store.get("lit_gans/positions//0").endswith(b"iteration 29 at the end"), "published in each"


def ends_with_the_reason(tmp_path, strategy, kind):
    codes, printed, _ = ranks.launch("tests.strategies.disagreeing.disagree", tmp_path, strategy=strategy, kind=kind)
    assert all(codes), printed
    place = (
        rf"in iteration {AT} at the (forward|backward|step|end)( of (generator|critic))?( with learning rate [\d.]+)?"
    )
    assert re.search(f"The ranks disagree: rank 0 {place}; rank 1 {place}\\.", "".join(printed)), printed


def test_ranks_that_train_different_networks_end(tmp_path):
    ends_with_the_reason(tmp_path, "ddp", "TrainsAnother")


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_that_disagree_end_under_every_strategy(tmp_path, strategy, kind):
    ends_with_the_reason(tmp_path, strategy, kind)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_disagree_later_end_with_the_timeout(tmp_path, kind):
    """Nothing is compared before: an error of the group is explained, or the end of the training raises."""
    path = "tests.strategies.disagreeing.disagree_later"
    codes, printed, _ = ranks.launch(path, tmp_path, kind=kind)
    assert all(codes), printed
    assert "The ranks disagree: rank 0 in iteration" in "".join(printed), printed


@pytest.mark.faults
def test_a_rank_that_is_late_is_waited_for(tmp_path):
    alone = train(Own, devices=1).state_dict()
    for rank in ranks.run("tests.strategies.disagreeing.be_late", tmp_path):
        for weights in rank.values():
            torch.testing.assert_close(weights, alone, rtol=0, atol=1e-6)
