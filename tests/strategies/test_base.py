"""What strategies replace, whether they shard, and when a backward is named."""

import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from lit_gans.checkpoints.format import CheckpointFiles
from lit_gans.strategies.base import backward_arguments, sharding
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.optimizer import EngineOptimizer
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.strategies.gradients import Gradients


@pytest.mark.parametrize("given", [None, TorchCheckpointIO])
@pytest.mark.parametrize("own", [False, True])
def test_only_lightnings_default_reader_of_checkpoints_is_replaced(tiny_gan, random_images, fit, given, own):
    """By ours, which replaces files atomically and reads folders of shards; also by our modules."""
    arguments = {"strategy": NetworkDDP()} if own else {}
    trainer = fit(tiny_gan("gan"), random_images(), 1, plugins=[given()] if given else None, **arguments)
    assert type(trainer.strategy.checkpoint_io) is (given or CheckpointFiles)


def test_a_backward_names_its_network_where_something_uses_the_name():
    scaling = SingleDeviceStrategy(precision_plugin=NetworkScaling("cpu"))
    strategies = (NetworkDDP(), scaling, SingleDeviceStrategy(), DDPStrategy())
    assert [[*backward_arguments(each, "generator")] for each in strategies] == [["network"], ["network"], [], []]


def test_zero_3_shards_once_it_has_engines():
    strategy = NetworkDeepSpeed(stage=3)
    assert sharding(strategy) is None
    strategy.engines["generator"] = None
    assert sharding(strategy) is strategy


def test_the_settings_of_an_engine_are_those_of_the_users_optimizer():
    layer = nn.Linear(2, 1)
    given = torch.optim.SGD(layer.parameters(), 0.1)
    (group,) = EngineOptimizer(Gradients("layer"), given, 2, lambda full, _: full, lambda full: full).param_groups
    given.param_groups[0]["params"] = [torch.zeros(3)]  # as ZeRO replaces them
    group["lr"] = 0.3
    assert given.param_groups[0]["lr"] == 0.3
    given.param_groups[0]["lr"] = 0.2  # by a scheduler
    assert group["lr"] == 0.2
    assert group["params"] == [*layer.parameters()]
