"""Rows of the table of known problems that need two ranks (docs/explain/known_problems.md)."""

import pytest
import torch

from tests.strategies import ranks
from tests.strategies.acceptance.cells import assert_like_one_process

from .on_ranks import PARITY, BatchNorm

pytestmark = pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run("tests.threads.on_ranks.find", tmp_path_factory.mktemp("threads"), rows=[*PARITY])


def trains_like_one_process(found, row):
    for rank in found:
        for cell in PARITY[row]:
            assert_like_one_process(rank[f"parity {row}"][cell], cell)


def test_01_lightnings_own_gan_example_under_ddp(found):
    assert all("Expected to have finished reduction" in rank["stock 1"] for rank in found)
    trains_like_one_process(found, 1)


def test_02_fsdp_wraps_generator_and_discriminator_each(found):
    trains_like_one_process(found, 2)


def test_03_each_network_has_a_deepspeed_engine(found):
    assert all(rank["engines"] == ["generator", "discriminator"] for rank in found)


def test_04_the_gan_example_under_zero_2_and_3(found):
    trains_like_one_process(found, 4)


def test_05_a_loss_that_goes_through_another_deepspeed_model(found):
    trains_like_one_process(found, 5)


def test_14_batch_norm_and_two_forwards(found):
    first, second = (rank["batch norm"] for rank in found)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-7)
    assert not torch.equal(first["critic.0.weight"], BatchNorm().critic[0].weight)


def test_15_gradient_penalty_under_ddp_reduces_every_bias(found):
    trains_like_one_process(found, 15)


def test_16_fsdp_keeps_what_the_gradient_penalty_differentiates(found):
    trains_like_one_process(found, 16)


def test_18_fsdp_with_a_first_forward_that_runs_frozen(found):
    trains_like_one_process(found, 18)


def test_21_a_vocoder_trains_the_same_on_any_number_of_ranks(found):
    trains_like_one_process(found, 21)


def test_22_accumulated_gradients_of_several_networks(found):
    trains_like_one_process(found, 22)
