"""Contracts between modules and strategies: what ours implement, and the defaults for those that do not."""

from contextlib import nullcontext

import pytest
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from lit_gans.strategies import contracts
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

OURS = [NetworkDDP, NetworkDeepSpeed, NetworkFSDP]
FOREIGN = [SingleDeviceStrategy, DDPStrategy]


@pytest.mark.parametrize("cls", OURS)
def test_our_strategies_name_networks_count_bytes_and_block_the_reduction(cls):
    strategy = cls()
    assert isinstance(strategy, contracts.NamedBackward)
    assert isinstance(strategy, contracts.BlocksSync)
    assert isinstance(strategy, contracts.CountsBytes)
    assert contracts.backward_arguments(strategy, "generator") == {"network": "generator"}
    assert contracts.clips_gradients(strategy) == (cls is NetworkDeepSpeed)


def test_a_strategy_is_sharding_only_while_no_rank_has_a_full_network():
    assert contracts.sharding(NetworkDDP()) is None
    strategy = NetworkFSDP()
    assert contracts.sharding(strategy) is strategy
    strategy = NetworkDeepSpeed(stage=3)
    assert isinstance(strategy, contracts.ShardsNetworks)
    assert contracts.sharding(strategy) is None, "no engine has sharded anything yet"
    strategy.engines["generator"] = None
    assert contracts.sharding(strategy) is strategy


@pytest.mark.parametrize("cls", FOREIGN)
def test_lightnings_strategies_have_the_defaults(cls):
    strategy = cls()
    assert contracts.backward_arguments(strategy, "generator") == {}
    assert not contracts.clips_gradients(strategy)
    assert contracts.sharding(strategy) is None
    assert contracts.bytes_held(strategy) == {}


def test_a_strategy_of_one_process_has_no_reduction_to_block():
    assert isinstance(contracts.block_backward_sync(SingleDeviceStrategy()), nullcontext)


def test_a_module_that_knows_nothing_of_the_contracts_has_the_defaults():
    module = BoringModel()
    assert contracts.penalized_networks(module) == ()
    assert contracts.clip_gradients_to(module) is None
    assert contracts.backpropagated_network(module) is None


def test_our_modules_implement_all_of_theirs(tiny_gan):
    module = tiny_gan("wgan_gp", clip_gradients=0.5)
    assert contracts.penalized_networks(module) == ("discriminator",)
    assert contracts.clip_gradients_to(module) == 0.5
    module.backpropagated_network = "generator"
    assert contracts.backpropagated_network(module) == "generator"


def test_a_module_may_give_a_plain_class_attribute():
    module = BoringModel()
    module.penalized_networks = ("layer",)
    assert contracts.penalized_networks(module) == ("layer",)
