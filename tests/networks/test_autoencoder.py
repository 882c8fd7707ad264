import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.autoencoder import Attention, Autoencoder
from lit_gans.networks.bottlenecks import DiagonalGaussian


def tiny(**settings):
    return Autoencoder(3, 16, 2, DiagonalGaussian(), 4, **{"width": 4, "multipliers": (1, 2), "blocks": 1, **settings})


def test_the_paper_s_width_has_the_paper_s_parameters():
    with torch.device("meta"):
        network = Autoencoder(3, 256, 4, DiagonalGaussian(), 8, width=128)
    # 83,653,863 in the published autoencoder, which has two 1x1 convolutions of 72 and 20 around its bottleneck
    assert sum(parameter.numel() for parameter in network.parameters()) == 83_653_863 - 72 - 20


def test_encoding_and_decoding_are_the_two_halves():
    network, images = tiny(), torch.randn(2, 3, 16, 24)
    made, features, _, codes, _ = network(images)
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
