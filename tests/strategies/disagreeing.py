"""Trainings in which the ranks disagree about what to train, and some in which one rank is only late."""

import time

from torch import nn
from torch.nn.functional import softplus

from lit_gans.strategies import rank_positions
from lit_gans.strategies.base import backward_arguments
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from .own_modules import Own
from .test_own_module import train

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


KINDS = {cls.__name__: cls for cls in (TrainsOneNetworkLess, TrainsAnother, SkipsAnIteration, ChangesItsRate)}


class IsLate(Disagrees):
    """Rank 1 is late in an iteration."""

    def training_step(self, batch, batch_idx):
        if self.odd(batch_idx):
            time.sleep(1)
        super().training_step(batch, batch_idx)


def disagree(strategy, kind):
    """Trains modules that must not reach the end."""
    train(KINDS[kind], devices=2, strategy=STRATEGIES[strategy]())


def disagree_later(kind):
    """The same under ddp, after the iterations that are compared at each collective."""
    rank_positions._EVERY = 1
    train(KINDS[kind], devices=2, strategy=NetworkDDP(timeout=5))


def be_late():
    """Trains modules that must, and returns their weights."""
    strategies = {name: STRATEGIES[name]() for name in ("ddp", "deepspeed_2", "fsdp")}
    for strategy in strategies.values():
        train(IsLate, devices=2, strategy=strategy)
    return {name: strategy.lightning_module_state_dict() for name, strategy in strategies.items()}
