"""Running statistics of batch norm: each rank normalizes with its own, and all go on from their mean."""

import warnings
from unittest.mock import patch

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn

from lit_gans.strategies import base
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .own_modules import Normalizes, Own
from .test_own_module import train as train_own

STRATEGIES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}


def statistics_of(module):
    """Returns the running means and variances now, by name."""
    return {name: buffer.clone() for name, buffer in module.named_buffers() if "running_" in name}


def train(strategy):
    """Trains and returns what this rank had before its statistics were averaged, and at the end of each iteration."""
    own, ends, average = [], [], base.average_over_ranks

    def record_and_average(buffers):
        own.append(statistics_of(strategy.lightning_module))
        average(buffers)

    look = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: ends.append(statistics_of(module)))
    with patch.object(base, "average_over_ranks", record_and_average):
        train_own(Normalizes, devices=2, strategy=strategy, callbacks=[look])
    return own, ends


class MovesCodes(Own):
    """A codebook that moves with the batch of the rank."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.zeros(4))

    def critic_backward(self, real, fake):
        self.codes.lerp_(real.mean(dim=0), 0.1)
        super().critic_backward(real + self.codes, fake)


def warned():
    """Returns the warnings of a training with other buffers on each rank."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        train_own(MovesCodes, devices=2, strategy=NetworkDDP())
    return [str(warning.message) for warning in found]


class NormalizesLater(Own):
    """A norm without a weight, which begins in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False), nn.Tanh(), nn.Linear(5, 1))

    def training_step(self, batch, batch_idx):
        self.critic[1].train(batch_idx > 0)
        super().training_step(batch, batch_idx)


def normalized_later():
    return statistics_of(train_own(NormalizesLater, devices=2, strategy=NetworkDDP()))


@pytest.mark.filterwarnings("ignore:Found .* in eval mode")
def test_a_norm_that_is_trained_from_a_later_iteration_on_is_averaged(tmp_path):
    first, second = ranks.run(f"{__name__}.normalized_later", tmp_path)
    assert first["critic.1.running_mean"].abs().min() > 0
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=0, atol=0)


def on_a_rank():
    return {name: train(strategy()) for name, strategy in STRATEGIES.items()}


def test_buffers_that_differ_between_ranks_give_a_warning(tmp_path):
    first, second = ranks.run(f"{__name__}.warned", tmp_path)
    sentence = "the buffer codes differs between the processes after the first iteration"
    assert sum(sentence in warning for warning in first) == 1
    assert not any(sentence in warning for warning in second)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_statistics.on_a_rank", tmp_path_factory.mktemp("statistics"))


@pytest.mark.ranks
@pytest.mark.parametrize("name", STRATEGIES)
def test_ranks_go_on_from_the_mean_of_what_each_found(trained, name):
    (own, ends), (others, their_ends) = (found[name] for found in trained)
    assert len(own) == len(others) == len(ends) == len(their_ends) == 6
    names = statistics_of(Normalizes()).keys()
    for mine, theirs, end, their_end in zip(own, others, ends, their_ends, strict=True):
        assert mine.keys() == end.keys() == names
        for key in names:
            assert not torch.equal(mine[key], theirs[key]), "each rank has images of its own"
            torch.testing.assert_close(end[key], (mine[key] + theirs[key]) / 2, rtol=0, atol=0)
            torch.testing.assert_close(their_end[key], end[key], rtol=0, atol=0)
