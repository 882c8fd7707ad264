"""compile=true with a gradient penalty on two ranks: the strategies train what they train uncompiled."""

import pytest
import torch
from torch import nn

from tests.strategies import ranks
from tests.tiny import fit, random_images, tiny_gan
from tests.training.compiled import PLAIN, STEPS, counted

NAMES = ("ddp", "fsdp", "deepspeed")
PASSES = 2 + 4 + 1 + 1  # of an iteration of WGAN-GP with two critic steps, beside those of the penalty

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode"),
]


def strategy_named(name):
    from lit_gans.strategies.ddp import NetworkDDP
    from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
    from lit_gans.strategies.fsdp import NetworkFSDP

    return {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}[name]()


def on_a_rank(name):
    """Returns the weights after a training that is not compiled and one that is, and the number of compiled passes."""
    called, plain = [], nn.Module.compile
    nn.Module.compile = lambda module: plain(module, backend=counted(called))
    states = []
    for compiles in (False, True):
        module, strategy = (
            tiny_gan("wgan_gp", network="mlp", n_critic=2, **PLAIN, compile=compiles),
            strategy_named(name),
        )
        fit(module, random_images(batch_size=4), STEPS, devices=2, strategy=strategy)
        states.append({key: value.clone() for key, value in strategy.lightning_module_state_dict().items()})
    return states, len(called)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_networks_with_a_penalty_train_alike_on_two_ranks(name, tmp_path):
    for (plain, compiled), passes in ranks.run(f"{__name__}.on_a_rank", tmp_path, name=name):
        assert plain
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-7)
        assert passes == STEPS * PASSES
