"""What a module asks of its strategy: ours answer, and Lightning's have defaults."""

from contextlib import nullcontext

import pytest
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from lit_gans.strategies import contracts
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.grad_scaling import NetworkScaling


@pytest.mark.parametrize("cls", [NetworkDDP, NetworkDeepSpeed, NetworkFSDP])
def test_our_strategies_name_networks_and_one_clips(cls):
    strategy = cls()
    assert contracts.backward_arguments(strategy, "generator") == {"network": "generator"}
    assert contracts.clips_gradients(strategy) == (cls is NetworkDeepSpeed)
    assert not isinstance(contracts.block_backward_sync(strategy), nullcontext)


def test_a_strategy_is_sharding_only_while_no_rank_has_a_full_network():
    assert contracts.sharding(NetworkDDP()) is None
    strategy = NetworkFSDP()
    assert contracts.sharding(strategy) is strategy
    strategy = NetworkDeepSpeed(stage=3)
    assert contracts.sharding(strategy) is None, "no engine has sharded anything yet"
    strategy.engines["generator"] = None
    assert contracts.sharding(strategy) is strategy


@pytest.mark.parametrize("cls", [SingleDeviceStrategy, DDPStrategy])
def test_lightnings_strategies_have_the_defaults(cls):
    strategy = cls()
    assert contracts.backward_arguments(strategy, "generator") == {}
    assert not contracts.clips_gradients(strategy)
    assert contracts.sharding(strategy) is None
    assert isinstance(contracts.block_backward_sync(strategy), nullcontext) == (cls is SingleDeviceStrategy)


def test_a_scaler_for_each_network_takes_its_name_on_one_device_too():
    strategy = SingleDeviceStrategy(precision_plugin=NetworkScaling("cpu"))
    assert contracts.backward_arguments(strategy, "generator") == {"network": "generator"}
