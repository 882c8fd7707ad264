"""The strategy benchmark: bytes and memory are held to what the sizes of the networks say. No timing is asserted."""

import json

import pytest

from benchmarks.strategies import strategies
from lit_gans.config.registry import gans
from lit_gans.strategies.base import running_statistics, trained_norms

pytestmark = pytest.mark.slow
GANS = ["dcgan", "wgan_gp", "d2gan"]
SIZES = {"image_size": 16, "generator_width": 4, "discriminator_width": 4}


def gradient_bytes(name, network="dcgan"):
    """Those of the generator, and of all discriminators together."""
    module = gans()[name](**SIZES, network=network)
    sizes = {n: 4 * sum(p.numel() for p in getattr(module, n).parameters()) for n in module.network_names}
    return module, sizes.pop("generator"), sum(sizes.values())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "strategies.json"
    return strategies("smoke", gans=GANS, output=str(path)), path


def test_result_is_written_and_complete(smoke):
    result, path = smoke
    assert json.loads(path.read_text()) == result
    assert list(result["gans"]) == GANS
    for found in result["gans"].values():
        assert found["ratio"]["lower_quartile"] <= found["ratio"]["median"] <= found["ratio"]["upper_quartile"]


@pytest.mark.parametrize("name", GANS)
def test_bytes_are_the_gradients_of_the_networks_that_train(smoke, name):
    """n_critic D + G, where one replica of all networks reduces (n_critic + 1)(G + D)."""
    module, generator, discriminators = gradient_bytes(name)
    counted = smoke[0]["gans"][name]["bytes_per_step"]
    assert counted["lit_gans"] == module.n_critic * discriminators + generator
    statistics = sum(buffer.nbytes for buffer in running_statistics(trained_norms(module, module.parameters())))
    assert smoke[0]["gans"][name]["other_bytes_per_step"]["lit_gans"] == statistics
    updates = module.n_critic * len(module.discriminator_names) + 1
    assert counted["lightning"] == updates * (generator + discriminators)


def test_each_rank_holds_what_its_strategy_promises(smoke):
    """Adam has two moments; ZeRO steps its shard of the weights in a copy."""
    module, generator, discriminator = gradient_bytes("dcgan", "resnet")
    full, memory = generator + discriminator, smoke[0]["memory"]
    padding = 0.02 * full  # shards are rounded up, steps are counted
    expected = {
        "ddp": (full, 2 * full),
        "deepspeed stage 1": (full, 1.5 * full),
        "deepspeed stage 2": (full, 1.5 * full),
        "deepspeed stage 3": (full / 2, 1.5 * full),
        "fsdp": (full / 2, full),
    }
    assert memory.keys() == expected.keys()
    for name, (parameters, optimizer) in expected.items():
        assert parameters <= memory[name]["parameters"] <= parameters + padding, name
        assert optimizer <= memory[name]["optimizer"] <= optimizer + padding, name
    assert memory["ddp"]["gradients"] == generator  # the discriminator's are gone by then
    assert generator / 2 <= memory["fsdp"]["gradients"] <= generator / 2 + padding
    largest = max(4 * parameter.numel() for parameter in module.generator.parameters())
    for stage in (1, 2):  # a parameter that crosses a shard boundary keeps its full gradient
        assert generator / 2 <= memory[f"deepspeed stage {stage}"]["gradients"] <= generator / 2 + largest
    assert full / 2 <= memory["deepspeed stage 3"]["gradients"] <= full / 2 + padding
