"""compile=true with a gradient penalty on two ranks: the strategies train what they train uncompiled."""

import pytest
import torch
from torch import nn

from tests.strategies import ranks
from tests.training.compiled import STEPS, TINY, counted, images

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
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader

    from lit_gans import WGANGP
    from lit_gans.training.optim import Optimizer

    called, plain = [], nn.Module.compile
    nn.Module.compile = lambda module: plain(module, backend=counted(called))
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    states = []
    for compiles in (False, True):
        optimizers = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), Optimizer("SGD", lr=0.05))
        module = WGANGP(**TINY, network="mlp", n_critic=2, **optimizers, compile=compiles)
        strategy, num = strategy_named(name), 4 * module.batches_per_step
        trainer = Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy=strategy, **quiet)
        data = [{key: value.float() for key, value in each.items()} for each in images(2 * STEPS * num)]
        trainer.fit(module, DataLoader(data, batch_size=num))
        states.append({key: value.clone() for key, value in strategy.lightning_module_state_dict().items()})
    return states, len(called)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_networks_with_a_penalty_train_alike_on_two_ranks(name, tmp_path):
    for (plain, compiled), passes in ranks.run(f"{__name__}.on_a_rank", tmp_path, name=name):
        assert plain
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-7)
        assert passes == STEPS * PASSES
