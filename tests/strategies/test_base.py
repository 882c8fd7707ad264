"""What a module asks of its strategy: ours answer, and Lightning's have defaults."""

from contextlib import nullcontext

import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.strategies import base
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.optimizer import EngineOptimizer
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.grad_scaling import NetworkScaling


@pytest.mark.parametrize("cls", [NetworkDDP, NetworkDeepSpeed, NetworkFSDP])
def test_our_strategies_name_networks_and_one_clips(cls):
    strategy = cls()
    assert base.backward_arguments(strategy, "generator") == {"network": "generator"}
    assert base.clips_gradients(strategy) == (cls is NetworkDeepSpeed)
    assert not isinstance(base.block_backward_sync(strategy), nullcontext)


def test_a_strategy_is_sharding_only_while_no_rank_has_a_full_network():
    assert base.sharding(NetworkDDP()) is None
    strategy = NetworkFSDP()
    assert base.sharding(strategy) is strategy
    strategy = NetworkDeepSpeed(stage=3)
    assert base.sharding(strategy) is None, "no engine has sharded anything yet"
    strategy.engines["generator"] = None
    assert base.sharding(strategy) is strategy


@pytest.mark.parametrize("cls", [SingleDeviceStrategy, DDPStrategy])
def test_lightnings_strategies_have_the_defaults(cls):
    strategy = cls()
    assert base.backward_arguments(strategy, "generator") == {}
    assert not base.clips_gradients(strategy)
    assert base.sharding(strategy) is None
    assert isinstance(base.block_backward_sync(strategy), nullcontext) == (cls is SingleDeviceStrategy)


def test_a_scaler_for_each_network_takes_its_name_on_one_device_too():
    strategy = SingleDeviceStrategy(precision_plugin=NetworkScaling("cpu"))
    assert base.backward_arguments(strategy, "generator") == {"network": "generator"}


class Given(TorchCheckpointIO):
    """A plugin of the user."""


@pytest.mark.parametrize("given", [None, TorchCheckpointIO, Given])
@pytest.mark.parametrize("own", [False, True])
def test_only_lightnings_default_reader_of_checkpoints_is_replaced(tiny_gan, random_images, fit, given, own):
    """By ours, which replaces files atomically and reads folders of shards; also by our modules."""
    arguments = {"strategy": NetworkDDP()} if own else {}
    trainer = fit(tiny_gan("gan"), random_images(), 1, plugins=[given()] if given else None, **arguments)
    assert type(trainer.strategy.checkpoint_io) is (given or CheckpointFiles)


def test_the_settings_of_an_engine_are_those_of_the_users_optimizer():
    layer = nn.Linear(2, 1)
    given = torch.optim.SGD(layer.parameters(), 0.1)
    (group,) = EngineOptimizer("layer", given, 2, lambda full, _: full, lambda full: full).param_groups
    given.param_groups[0]["params"] = [torch.zeros(3)]  # as ZeRO replaces them
    group["lr"] = 0.3
    assert given.param_groups[0]["lr"] == 0.3
    given.param_groups[0]["lr"] = 0.2  # by a scheduler
    assert group["lr"] == 0.2
    assert group["params"] == [*layer.parameters()]
