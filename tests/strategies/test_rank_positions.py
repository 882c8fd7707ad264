"""Ranks that disagree about what to train end with a sentence, and ranks that are late do not."""

import re

import pytest
from torch import nn
from torch.distributed import HashStore
from torch.nn.functional import softplus

from lit_gans.strategies import rank_positions
from lit_gans.strategies.base import backward_arguments
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.rank_positions import Positions, RanksDisagree

from . import ranks
from .own_modules import Own
from .test_own_module import train


def follow(*of_ranks):
    """Returns what the ranks say, each of which reaches the backwards of its networks, in turns of one iteration."""
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


def test_ranks_agree_where_one_is_late():
    follow(["d g", "d g"], ["d g"], ["d g", "d g"])
    follow(["d g"] * 30, [])


@pytest.mark.parametrize(
    ("of_ranks", "sentence"),
    [
        ([["d g", "d g"], ["d g", "", "d"]], "rank 0 in iteration 1 at the backward of d; rank 1 in iteration 1 at t"),
        ([["d", "d"], ["d", "d"], ["d", "g"]], "rank 0 in iteration 1 at the backward of d; rank 2 in iteration 1 at"),
    ],
)
def test_the_first_different_event_is_named(of_ranks, sentence):
    with pytest.raises(RanksDisagree, match=sentence):
        follow(*of_ranks)


def test_a_difference_before_all_events_that_are_known_is_found(monkeypatch):
    monkeypatch.setattr(Positions, "compare", lambda positions: None)
    one, _ = follow(*([first, *["d g"] * 29] for first in ("d g", "g d")))
    monkeypatch.undo()
    with pytest.raises(RanksDisagree, match=r"in iteration \d+ at .*, but after different events"):
        one.compare()


def test_later_one_iteration_in_so_many_is_compared_at_its_end(monkeypatch):
    monkeypatch.setattr(rank_positions, "_EVERY", 10)
    compared = []
    monkeypatch.setattr(Positions, "compare", lambda positions: compared.append(positions._iteration))
    follow(["d"] * 30)
    assert compared == [*sorted([*range(10)] * 2), 9, 19, 29]


# ---- trainings in which the ranks disagree about what to train

EVERY = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}  # else small layers stay gathered
STRATEGIES = {
    "ddp": NetworkDDP,
    "deepspeed_2": lambda: NetworkDeepSpeed(stage=2),
    "deepspeed_3": lambda: NetworkDeepSpeed(stage=3, config=EVERY),
    "fsdp": NetworkFSDP,
}
AT = 2  # the iteration that ranks disagree about


class Disagrees(Own):
    """Rank 1 differs in one iteration."""

    def odd(self, batch_idx):
        return self.global_rank == 1 and batch_idx == AT


class TrainsOneNetworkLess(Disagrees):
    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        if not self.odd(batch_idx):
            self.train_only(self.critic)
            self.critic_backward(real, self.generator(latents).detach())
            self.step(for_critic)
        self.train_only(self.generator)
        self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
        self.step(for_generator)


class TrainsAnother(Disagrees):
    """Networks of the same size, so that a collective of one matches that of the other."""

    def __init__(self):
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        network = "generator" if batch_idx % 2 == self.odd(batch_idx) else "critic"
        loss = self.critic(self.generator(batch[0])).square().mean()
        self.manual_backward(loss, **backward_arguments(self.trainer.strategy, network))
        self.step(self.optimizers()[network == "critic"])


class ReachesAnother(TrainsAnother):
    """Freezes and names nothing: the loss decides which network trains."""

    def training_step(self, batch, batch_idx):
        network = self.generator if batch_idx % 2 == self.odd(batch_idx) else self.critic
        self.manual_backward(network(batch[0]).square().mean())
        for optimizer in self.optimizers():
            self.step(optimizer)


class SkipsAnIteration(Disagrees):
    def training_step(self, batch, batch_idx):
        if not self.odd(batch_idx):
            super().training_step(batch, batch_idx)


class ChangesItsRate(Disagrees):
    """As a ReduceLROnPlateau that sees the loss of one rank."""

    def training_step(self, batch, batch_idx):
        if self.odd(batch_idx):
            self.optimizers()[1].param_groups[0]["lr"] /= 10
        super().training_step(batch, batch_idx)


KINDS = {
    cls.__name__: cls for cls in (TrainsOneNetworkLess, TrainsAnother, ReachesAnother, SkipsAnIteration, ChangesItsRate)
}


def disagree(strategy, kind):
    """Trains modules that must not reach the end."""
    train(KINDS[kind], devices=2, strategy=STRATEGIES[strategy]())


def disagree_later(kind):
    """The same under ddp, after the iterations that are compared at each collective."""
    rank_positions._EVERY = 1
    train(KINDS[kind], devices=2, strategy=NetworkDDP(timeout=5))


def ends_with_the_reason(tmp_path, strategy, kind):
    codes, printed, _ = ranks.launch(f"{__name__}.disagree", tmp_path, strategy=strategy, kind=kind)
    assert all(codes), printed
    place = (
        rf"in iteration {AT} at the (forward|backward|step|end)( of (generator|critic))?( with learning rate [\d.]+)?"
    )
    assert re.search(f"The ranks disagree: rank 0 {place}; rank 1 {place}\\.", "".join(printed)), printed


@pytest.mark.parametrize("kind", ["TrainsAnother", "ReachesAnother"])
def test_ranks_that_train_different_networks_end(tmp_path, kind):
    ends_with_the_reason(tmp_path, "ddp", kind)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_that_disagree_end_under_every_strategy(tmp_path, strategy, kind):
    ends_with_the_reason(tmp_path, strategy, kind)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_disagree_later_end_with_the_timeout(tmp_path, kind):
    """Nothing is compared before: an error of the group is explained, or the end of the training raises."""
    codes, printed, _ = ranks.launch(f"{__name__}.disagree_later", tmp_path, kind=kind)
    assert all(codes), printed
    assert "The ranks disagree: rank 0 in iteration" in "".join(printed), printed
