import pytest
import torch
from torch.distributions import Normal, kl_divergence

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.autoencoder import (
    Attention,
    Autoencoder,
    DiagonalGaussian,
    VectorQuantizer,
    perplexity,
    usage_of,
)


def tiny(**settings):
    return Autoencoder(3, 16, 2, DiagonalGaussian(), 4, **{"width": 4, "multipliers": (1, 2), "blocks": 1, **settings})


def test_the_paper_s_width_has_the_paper_s_parameters():
    with torch.device("meta"):
        network = Autoencoder(3, 256, 4, DiagonalGaussian(), 8, width=128)
    # 83,653,863 in the published autoencoder, which has two 1x1 convolutions of 72 and 20 around its bottleneck
    assert sum(parameter.numel() for parameter in network.parameters()) == 83_653_863 - 72 - 20


def test_encoding_and_decoding_are_the_two_halves():
    network, images = tiny(), torch.randn(2, 3, 16, 24)
    made, features, _, codes = network(images)
    latents, _ = network.encode(images)
    assert latents.shape == (2, 2, 8, 12)
    assert torch.equal(network.decode(latents), made)
    assert torch.equal(network.last(features), made), "equation 7 needs the input of the last layer"
    assert codes is None


def test_attention_is_a_mean_of_all_positions():
    layer, features = Attention(4), torch.randn(2, 4, 3, 5)
    query, key, value = layer.project(layer.norm(features)).flatten(2).chunk(3, 1)
    weights = (query.mT @ key / 2).softmax(-1)
    expected = features + layer.out((value @ weights.mT).unflatten(2, (3, 5)))
    torch.testing.assert_close(layer(features), expected)


def test_sizes_that_cannot_be_halved_are_refused():
    with pytest.raises(RefusedInput, match=r"must be multiples of 4 pixels; the nearest size is \[16,32"):
        Autoencoder(3, (16, 30), 2, DiagonalGaussian(), 4, multipliers=(1, 1, 1))


def test_groups_that_do_not_divide_the_channels_are_refused():
    with pytest.raises(RefusedInput, match=r"groups=3 must divide .*, \[4, 8\], for example groups=4"):
        tiny(groups=3)
    norms = [layer for layer in tiny(groups=2).modules() if isinstance(layer, torch.nn.GroupNorm)]
    assert {layer.num_groups for layer in norms} == {2}


def test_gaussians_have_the_divergence_of_torch_and_are_drawn_from_noise():
    moments, noise = torch.randn(2, 6, 4, 5), torch.randn(2, 3, 4, 5)
    mean, deviation = moments[:, :3], (moments[:, 3:] / 2).exp()
    latents, divergence, codes = DiagonalGaussian()(moments, noise)
    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).sum((1, 2, 3))
    torch.testing.assert_close(divergence, expected)
    torch.testing.assert_close(latents, mean + deviation * noise)
    assert codes is None
    assert torch.equal(DiagonalGaussian()(moments)[0], mean), "without noise, the means"


def test_extreme_variances_stay_finite():
    for extreme in (-1e4, 1e4):
        latents, divergence, _ = DiagonalGaussian()(torch.full((1, 2, 1, 1), extreme), torch.ones(1, 1, 1, 1))
        assert latents.isfinite().all()
        assert divergence.isfinite().all()


@pytest.fixture
def quantizer():
    quantizer = VectorQuantizer(7, 3, commitment_weight=0.4)
    torch.nn.init.normal_(quantizer.vectors)
    return quantizer


def test_each_vector_becomes_the_nearest_one(quantizer):
    encoded = torch.randn(2, 3, 4, 5)
    latents, _, codes = quantizer(encoded)
    distances = (encoded[:, None] - quantizer.vectors[None, :, :, None, None]).norm(dim=2)
    assert torch.equal(codes, distances.argmin(1))
    torch.testing.assert_close(latents, quantizer.vectors[codes].movedim(-1, 1))


def test_vectors_learn_from_the_encoder_and_the_encoder_commits(quantizer):
    encoded = torch.randn(2, 3, 4, 5, requires_grad=True)
    _, loss, codes = quantizer(encoded)
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
        _, loss, codes = quantizer(encoded)
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
