"""Rows of the table of known problems that need two ranks (docs/explain/known_problems.md)."""

import pytest
import torch
from lightning.fabric.strategies import DeepSpeedStrategy
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import ModelParallelStrategy

from tests.strategies import ranks
from tests.strategies.acceptance.cells import EXAMPLES, STEPS, STRATEGIES, Cell, assert_like_one_process, outcomes
from tests.strategies.acceptance.lightning_gan import LightningGAN
from tests.strategies.own_modules import Normalizes, Own
from tests.strategies.test_own_module import train

from . import stock as stock_tools

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode"),
]


PARITY = {  # by row: modules as their users write them, and the strategies of the complaint
    1: [Cell("LightningGAN", "ddp")],
    2: [Cell("LightningGAN", "fsdp wrap=network")],
    4: [Cell("LightningGAN", "deepspeed stage=2"), Cell("LightningGAN", "deepspeed stage=3")],
    5: [Cell("Distillation", "deepspeed stage=2")],
    15: [Cell("WGANGP", "ddp")],
    16: [Cell("WGANGP", "fsdp wrap=network")],
    18: [Cell("Autoencoder", "fsdp wrap=network")],  # its discriminator starts late
    21: [Cell("Vocoder", "ddp")],
    22: [Cell("Vocoder", "ddp", accumulate=2)],
}


def find():
    """Returns by row what a rank found."""
    found = {f"parity {row}": outcomes(cells) for row, cells in PARITY.items()}
    module = EXAMPLES["LightningGAN"]()
    engines = []
    module.on_train_start = lambda: engines.extend(module.trainer.strategy.engines)
    train(lambda: module, devices=2, strategy=STRATEGIES["deepspeed stage=2"]())
    found["engines"] = engines
    module = train(Normalizes, devices=2, strategy=STRATEGIES["ddp"]())
    found["batch norm"] = {name: value.clone() for name, value in module.state_dict().items()}
    return found | {"stock": stock_tools.find()}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run(f"{__name__}.find", tmp_path_factory.mktemp("threads"))


def trains_like_one_process(found, row):
    for rank in found:
        for cell in PARITY[row]:
            assert_like_one_process(rank[f"parity {row}"][cell], cell)


def stock(found, row):
    """Returns what the stock tool did on each rank."""
    return [rank["stock"][row] for rank in found]


def test_01_lightnings_own_gan_example_under_ddp(found):
    assert all("parameters that were not used in producing the loss" in error for error in stock(found, 1))
    trains_like_one_process(found, 1)


def test_02_fsdp_wraps_generator_and_discriminator_each(found):
    with pytest.raises(TypeError, match="required to override the `configure_model"):
        train(devices=1, strategy=ModelParallelStrategy())
    trains_like_one_process(found, 2)


def test_03_each_network_has_a_deepspeed_engine(found):
    with pytest.raises(ValueError, match="only one optimizer is supported with DeepSpeed"):
        DeepSpeedStrategy().setup_module_and_optimizers(Own(), [torch.optim.Adam(Own().parameters())] * 2)
    assert all(rank["engines"] == ["generator", "discriminator"] for rank in found)


def test_04_the_gan_example_under_zero_2_and_3(found):
    assert all(off > 1e-3 for rank in stock(found, 4) for off in rank)  # in stages 2 and 3, without an error
    trains_like_one_process(found, 4)


def test_05_a_loss_that_goes_through_another_deepspeed_model(found):
    assert all(off > 1e-3 for off in stock(found, 5))  # in stage 3, without an error
    trains_like_one_process(found, 5)


def test_14_batch_norm_and_two_forwards(found):
    assert stock(found, 14) == ["none", "none"]  # the error is one of older versions
    first, second = (rank["batch norm"] for rank in found)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-7)
    assert not torch.equal(first["critic.0.weight"], Normalizes().critic[0].weight)


def test_15_gradient_penalty_under_ddp_reduces_every_bias(found):
    first, second = stock(found, 15)
    assert (first - second).abs().max() > 1e-3  # no average, and no error
    trains_like_one_process(found, 15)


def test_16_fsdp_keeps_what_the_gradient_penalty_differentiates(found):
    assert all("out of bounds for storage of size 0" in error for error in stock(found, 16))
    trains_like_one_process(found, 16)


def test_18_fsdp_with_a_first_forward_that_runs_frozen(found):
    for frozen, never_frozen in stock(found, 18):  # the wrong precision is one of older versions
        torch.testing.assert_close(frozen, never_frozen, rtol=0, atol=0)
    trains_like_one_process(found, 18)


def test_19_a_metric_on_the_first_rank_alone_waits_for_the_other_ranks(found):
    error, waited = stock(found, 19)
    assert "Timed out waiting" in error
    assert waited == "waited"


def test_20_ranks_that_disagree_wait_until_the_timeout(found):
    assert all("imed out" in error or "closed" in error or "closure" in error for error in stock(found, 20))


def test_21_a_vocoder_trains_the_same_on_any_number_of_ranks(found):
    trains_like_one_process(found, 21)


def test_22_accumulated_gradients_of_several_networks(found):
    with pytest.raises(MisconfigurationException, match="accumulation is not supported for manual optimization"):
        train(devices=1, accumulate_grad_batches=2)
    once = STEPS * sum(parameter.numel() for parameter in LightningGAN().parameters())
    assert stock(found, 22) == [2 * once, 2 * once]  # both networks, in the turn of each
    trains_like_one_process(found, 22)
