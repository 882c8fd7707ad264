import pytest
import torch

from lit_gans.common.noise import Noise, forked, mix, seed_dropout


def noise(key=(0, 1), rank=0, world_size=1, microbatches=1):
    return Noise(torch.Generator(), key, rank, world_size, microbatches)


@pytest.mark.parametrize("microbatches", [1, 3])
def test_two_ranks_see_what_one_process_sees(microbatches):
    full = noise().normal("latents", 12, 3)
    halves = [noise((0, 1), rank, 2, microbatches).normal("latents", 6, 3) for rank in (0, 1)]
    joined = torch.cat([half.unflatten(0, (microbatches, -1)) for half in halves], 1).flatten(0, 1)
    assert torch.equal(joined, full)


def test_depends_on_every_part_of_the_key_and_on_nothing_else():
    first = noise((0, "generator", 1)).normal("latents", 4)
    assert torch.equal(first, noise((0, "generator", 1)).normal("latents", 4))
    for key, purpose in (
        ((1, "generator", 1), "latents"),
        ((0, "discriminator", 1), "latents"),
        ((0, "generator", 1), "x"),
    ):
        assert not torch.equal(first, noise(key).normal(purpose, 4))
    assert mix(1, 23) != mix(12, 3)
    used = noise((0, "generator", 1))
    used.normal("x", 3)
    assert torch.equal(first, used.normal("latents", 4)), "also after another draw"


def test_the_global_state_stays():
    before = torch.get_rng_state()
    noise().normal("latents", 4)
    with forked():
        torch.manual_seed(3)
        torch.randn(3)
    assert torch.equal(before, torch.get_rng_state())


def test_numbers_have_the_named_distribution_and_shape():
    uniform, normal = noise().uniform("eps", 4000, 1, 2), noise().normal("latents", 4000, 3)
    assert (uniform.shape, normal.shape) == ((4000, 1, 2), (4000, 3))
    assert 0 <= uniform.min() < uniform.max() < 1
    assert (uniform.mean().item(), uniform.var().item()) == pytest.approx((1 / 2, 1 / 12), abs=0.02)
    assert (normal.mean().item(), normal.var().item()) == pytest.approx((0, 1), abs=0.05)


def test_dropout_is_seeded_on_the_host():
    for seed in (3, 4):
        seed_dropout(torch.device("cpu"), seed)
        drawn = torch.rand(3)
        torch.manual_seed(seed)
        assert torch.equal(drawn, torch.rand(3))
