"""Ranks that disagree about what to train end with a sentence, and ranks that are late do not."""

import os
import re
import signal

import pytest
import torch
from torch.distributed import HashStore

from lit_gans.strategies import rank_positions
from lit_gans.strategies.rank_positions import Positions, PositionWatch, RanksDisagree, disagreement, read

from . import ranks
from .disagreeing import AT, KINDS, STRATEGIES
from .own_modules import Own
from .test_own_module import train


def noted(*iterations):
    """Returns the positions of a rank that has trained networks in each iteration."""
    positions = Positions()
    for iteration, networks in enumerate(iterations):
        positions.begin(iteration)
        for network in networks.split():
            positions.note(f"the backward of {network}")
    return positions


def said(*of_ranks):
    return disagreement({rank: positions.events() for rank, positions in enumerate(of_ranks)})


def test_ranks_agree_where_one_is_late():
    assert said(noted("d g", "d g"), noted("d g", "d"), noted("d g")) is None
    assert said(noted("d g"), noted()) is None


@pytest.mark.parametrize(
    ("of_ranks", "sentence"),
    [
        (
            [["d g", "d g"], ["d g", "g"]],
            "rank 0 in iteration 1 at the backward of d; rank 1 in iteration 1 at the bac",
        ),
        ([["d g", "d"], ["d g", ""], ["d g", "", "d"]], "rank 0 in iteration 1 at the backward of d; rank 2 in ite"),
        ([["d", "d"], ["d", "d"], ["d", "g"]], "ranks 0, 1 in iteration 1 at the backward of d; rank 2 in iteration 1"),
    ],
)
def test_the_first_different_event_is_named(of_ranks, sentence):
    found = said(*(noted(*iterations) for iterations in of_ranks))
    assert sentence in found


def test_a_difference_before_all_events_that_are_known_is_found():
    one, other = (noted(first, *["d g"] * 30) for first in ("d g", "g d"))
    tails = read(bytes(one.tail)), read(bytes(other.tail))
    assert tails[0][0].number > 3
    assert "but after different events" in disagreement(dict(enumerate(tails)))
    assert "rank 0 in iteration 0 at the backward of d" in said(one, other)


def test_what_a_rank_shows_are_its_latest_events(tmp_path):
    positions = Positions()
    positions.restart(tmp_path / "0")
    for iteration in range(70):
        positions.begin(iteration)
        positions.note("the backward of ä" + 200 * "x")
        shown = read((tmp_path / "0").read_bytes())
        assert [event[:3] for event in shown] == [event[:3] for event in positions.events()[-len(shown) :]]
        assert len(shown) == min(2 * iteration + 2, rank_positions._TAIL)
    assert shown[-1].what.startswith("the backward of ?xxx")


def test_a_training_does_not_end_well_if_the_ranks_differ(monkeypatch, tmp_path):
    monkeypatch.setattr(rank_positions.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(rank_positions, "_PERIOD", 1000.0)
    store, both = HashStore(), [Positions(), Positions()]
    watches = [PositionWatch(store, rank, 2, positions, "x") for rank, positions in enumerate(both)]
    both[1].note("the backward of d")
    watches[1].finish(watches[0]._publish)
    both[0].note("the backward of g")
    with pytest.raises(RanksDisagree, match="at the backward of g; rank 1"):
        watches[1].finish(watches[0]._publish)
    for watch in watches:
        watch.stop()
    assert not [*tmp_path.iterdir()]


def test_no_rank_leaves_before_all_have_read_the_store():
    """At 50 ms between two hosts, rank 0 ended its process, and with it the store, while rank 1 was reading."""
    store, barriers = HashStore(), []
    watches = [PositionWatch(store, rank, 2, Positions(), "x") for rank in range(2)]

    def barrier():
        barriers.append(None)
        if len(barriers) == 2:
            assert store.delete_key("lit_gans/positions/x/at/0")  # what is read now, waits for ever
        else:
            watches[0]._publish()

    watches[1].finish(barrier)
    assert len(barriers) == 2
    for watch in watches:
        watch.stop()


def die(folder):
    positions = Positions()
    positions.restart(folder / "0")
    os.kill(os.getpid(), signal.SIGKILL)


def test_folders_of_killed_processes_are_removed_by_the_next_training(monkeypatch, tmp_path):
    monkeypatch.setattr(rank_positions.tempfile, "gettempdir", lambda: str(tmp_path))
    living, killed, new = (tmp_path / f"lit_gans_positions_{name}" for name in ("living", "killed", "new"))
    for folder in (living, killed, new):
        folder.mkdir()
    (codes, *_), positions = ranks.launch(f"{__name__}.die", tmp_path, 1, folder=killed), Positions()
    assert codes == [-signal.SIGKILL]
    assert [*killed.iterdir()]
    positions.restart(living / "0")
    for folder in (living, killed):
        os.utime(folder, (0, 0))  # long ago
    PositionWatch(HashStore(), 0, 1, Positions(), "x").stop()
    assert {path.name for path in tmp_path.glob("lit_gans_positions_*")} == {living.name, new.name}


def ends_with_the_reason(tmp_path, strategy, kind):
    codes, printed, _ = ranks.launch("tests.strategies.disagreeing.disagree", tmp_path, strategy=strategy, kind=kind)
    assert all(codes), printed
    place = rf"in iteration {AT} at the (forward|backward|end)( of (generator|critic))?"
    assert re.search(f"The ranks disagree: rank 0 {place}; rank 1 {place}\\.", "".join(printed)), printed


def test_ranks_that_train_different_networks_end(tmp_path):
    ends_with_the_reason(tmp_path, "ddp", "TrainsAnother")


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_that_disagree_end_under_every_strategy(tmp_path, strategy, kind):
    ends_with_the_reason(tmp_path, strategy, kind)


@pytest.mark.faults
def test_a_rank_that_is_late_is_waited_for(tmp_path):
    alone = train(Own, devices=1).state_dict()
    for rank in ranks.run("tests.strategies.disagreeing.be_late", tmp_path):
        for weights in rank.values():
            torch.testing.assert_close(weights, alone, rtol=0, atol=1e-6)
