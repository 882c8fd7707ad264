import itertools

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from vector_quantize_pytorch import FSQ, LFQ

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.bottlenecks import (
    DiagonalGaussian,
    FiniteScalarQuantizer,
    LookupFreeQuantizer,
    VectorQuantizer,
    entropy_of_mean,
    perplexity,
    usage_of,
)


def test_gaussians_have_the_divergence_of_torch_and_are_drawn_from_noise():
    moments, noise = torch.randn(2, 6, 4, 5), torch.randn(2, 3, 4, 5)
    mean, deviation = moments[:, :3], (moments[:, 3:] / 2).exp()
    latents, divergence, codes, _ = DiagonalGaussian()(moments, noise)
    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).sum((1, 2, 3))
    torch.testing.assert_close(divergence, expected)
    torch.testing.assert_close(latents, mean + deviation * noise)
    assert codes is None
    assert torch.equal(DiagonalGaussian()(moments)[0], mean), "without noise, the means"


def test_extreme_variances_stay_finite():
    for extreme in (-1e4, 1e4):
        latents, divergence, *_ = DiagonalGaussian()(torch.full((1, 2, 1, 1), extreme), torch.ones(1, 1, 1, 1))
        assert latents.isfinite().all()
        assert divergence.isfinite().all()


@pytest.fixture
def quantizer():
    quantizer = VectorQuantizer(7, 3, commitment_weight=0.4)
    torch.nn.init.normal_(quantizer.vectors)
    return quantizer


def test_each_vector_becomes_the_nearest_one(quantizer):
    encoded = torch.randn(2, 3, 4, 5)
    latents, _, codes, _ = quantizer(encoded)
    distances = (encoded[:, None] - quantizer.vectors[None, :, :, None, None]).norm(dim=2)
    assert torch.equal(codes, distances.argmin(1))
    torch.testing.assert_close(latents, quantizer.vectors[codes].movedim(-1, 1))


def test_vectors_learn_from_the_encoder_and_the_encoder_commits(quantizer):
    encoded = torch.randn(2, 3, 4, 5, requires_grad=True)
    _, loss, codes, _ = quantizer(encoded)
    difference = (encoded - quantizer.vectors[codes].movedim(-1, 1)).detach()
    torch.testing.assert_close(loss, 1.4 * difference.square().mean((1, 2, 3)))
    loss.sum().backward()
    torch.testing.assert_close(encoded.grad, 0.4 * 2 * difference / 60)
    expected = torch.zeros(7, 3).index_add(0, codes.flatten(), -2 * difference.movedim(1, -1).reshape(-1, 3) / 60)
    torch.testing.assert_close(quantizer.vectors.grad, expected)


def test_the_published_weights_of_vqgan_had_beta_on_the_vectors_term():
    encoded = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    for legacy in (False, True):
        quantizer = VectorQuantizer(7, 3, commitment_weight=0.4, legacy=legacy).double()
        _, loss, codes, _ = quantizer(encoded)
        chosen = quantizer.vectors[codes].movedim(-1, 1)
        encoder, vectors = ((encoded - chosen.detach()) ** 2).mean(), ((encoded.detach() - chosen) ** 2).mean()
        expected = encoder + 0.4 * vectors if legacy else 0.4 * encoder + vectors
        torch.testing.assert_close(loss.mean(), expected)
        inputs = encoded, quantizer.vectors
        found, wanted = (torch.autograd.grad(each, inputs) for each in (loss.mean(), expected))
        torch.testing.assert_close(found, wanted)


def test_gradients_pass_straight_through_to_the_encoder_and_not_to_the_vectors(quantizer):
    encoded, upstream = torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(2, 3, 4, 5)
    (quantizer(encoded)[0] * upstream).sum().backward()
    assert torch.equal(encoded.grad, upstream)
    assert quantizer.vectors.grad is None or not quantizer.vectors.grad.any()


def test_half_precision_does_not_choose_other_vectors(quantizer):
    encoded = torch.randn(2, 3, 4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        found = quantizer(encoded)
    assert torch.equal(found[2], quantizer(encoded)[2])
    assert found[0].dtype == torch.float32


def test_perplexity_counts_the_vectors_in_use():
    codes = torch.tensor([[[0, 0, 2], [2, 5, 5]]])
    usage = usage_of(codes, 8)
    torch.testing.assert_close(usage, torch.tensor([1, 0, 1, 0, 0, 1, 0, 0]) / 3)
    torch.testing.assert_close(perplexity(usage), torch.tensor(3.0))
    assert perplexity(usage_of(torch.zeros(1, 2, 2, dtype=torch.long), 8)) == 1


# ---- finite scalar quantization


@pytest.mark.parametrize("levels", [(8, 5, 5, 5), (3, 3), (4, 4, 4)])
def test_levels_are_those_of_vector_quantize_pytorch(levels):
    encoded = torch.randn(2, len(levels), 6, 5, dtype=torch.double).mul(3).requires_grad_()
    ours, theirs = FiniteScalarQuantizer(levels), FSQ(list(levels), force_quantization_f32=False).double()
    latents, loss, codes, _ = ours(encoded)
    expected, indices = theirs(encoded)
    torch.testing.assert_close(latents, expected, check_dtype=False)
    assert torch.equal(codes, indices.long())
    upstream = torch.randn_like(latents)
    found, wanted = (torch.autograd.grad(each, encoded, upstream, retain_graph=True) for each in (latents, expected))
    torch.testing.assert_close(found, wanted)
    assert not loss.any()


def test_every_combination_of_levels_has_its_own_index():
    quantizer = FiniteScalarQuantizer((4, 3))
    encoded = torch.tensor([*itertools.product(torch.linspace(-5, 5, 101), repeat=2)]).view(1, 101, 101, 2)
    latents, _, codes, _ = quantizer(encoded.permute(0, 3, 1, 2))
    vectors = latents.movedim(1, -1).flatten(0, 2)
    assert quantizer.num_codes == 12
    assert codes.unique().tolist() == [*range(12)]
    assert all(len(vectors[codes.flatten() == code].unique(dim=0)) == 1 for code in range(12))
    assert vectors[:, 0].unique().tolist() == [-1, -0.5, 0, 0.5], "an even number of levels"
    assert vectors[:, 1].unique().tolist() == [-1, 0, 1]


# ---- lookup-free quantization


def test_signs_and_losses_are_those_of_vector_quantize_pytorch():
    encoded = torch.randn(3, 4, 6, 5, dtype=torch.double).mul(0.02).requires_grad_()
    ours = LookupFreeQuantizer(4, commitment_weight=0.3, entropy_weight=0.2)
    theirs = LFQ(dim=4, entropy_loss_weight=0.2, commitment_loss_weight=0.3, force_quantization_f32=False).double()
    latents, loss, codes, assignment = ours(encoded)
    expected, indices, wanted = theirs(encoded)
    torch.testing.assert_close(latents, expected)
    assert torch.equal(_reversed_bits(codes, 4), indices.long()), "their first channel has the largest place value"
    found = loss.mean() - 0.2 * entropy_of_mean(assignment, lambda mean: mean)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, encoded), torch.autograd.grad(wanted, encoded))
    assert found.abs() > 1e-3


def _reversed_bits(codes, num):
    return sum((codes >> bit & 1) << (num - 1 - bit) for bit in range(num))


def test_two_ranks_have_the_entropy_and_the_gradient_of_one_process():
    quantizer = LookupFreeQuantizer(3)
    encoded = torch.randn(4, 3, 2, 2, dtype=torch.double).mul(0.02).requires_grad_()
    whole = entropy_of_mean(quantizer(encoded).assignment, lambda mean: mean)
    halves = [quantizer(half).assignment for half in encoded.chunk(2)]
    mean = torch.cat(halves).mean(0).detach()
    parts = [entropy_of_mean(half, lambda _: mean) for half in halves]
    assert all(torch.allclose(part, whole, rtol=1e-12) for part in parts)
    (expected,) = torch.autograd.grad(whole, encoded)
    (found,) = torch.autograd.grad(sum(parts) / 2, encoded)
    torch.testing.assert_close(found, expected)
    assert expected.abs().max() > 1e-3


def test_probabilities_are_computed_in_training_only():
    quantizer = LookupFreeQuantizer(3).eval()
    assert quantizer(torch.randn(2, 3, 2, 2)).assignment is None
    assert LookupFreeQuantizer(3, entropy_weight=0.0)(torch.randn(2, 3, 2, 2)).assignment is None


def test_too_many_bits_are_refused():
    with pytest.raises(RefusedInput, match=r"latent_channels=18: quantizer=lfq .* at most 14 channels"):
        LookupFreeQuantizer(18)
