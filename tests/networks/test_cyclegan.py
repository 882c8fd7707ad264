import torch
from torch import nn
from torch.nn import functional

from lit_gans.networks.blocks import padded
from lit_gans.networks.cyclegan import BothWays, ResidualTranslator


def test_it_is_the_network_of_the_paper():
    """c7s1-64, d128, d256, R256, u128, u64, c7s1-3 (section 7.2), computed layer by layer."""
    network, image = ResidualTranslator(3, 2, width=4, blocks=2).double(), torch.rand(2, 3, 16, 24, dtype=torch.float64)
    weights = [layer.weight for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]
    assert len(weights) == 3 + 2 * 2 + 2 + 1

    def normalized(maps):
        mean, variance = maps.mean((2, 3), keepdim=True), maps.var((2, 3), keepdim=True, unbiased=False)
        return (maps - mean) / (variance + 1e-5).sqrt()

    def reflected(maps, size):
        return functional.pad(maps, (size, size, size, size), mode="reflect")

    stem, down1, down2, *blocks, up1, up2, last = weights
    maps = normalized(functional.conv2d(reflected(image, 3), stem)).relu()
    for weight in (down1, down2):
        maps = normalized(functional.conv2d(maps, weight, stride=2, padding=1)).relu()
    for first, second in zip(blocks[::2], blocks[1::2], strict=True):
        inner = normalized(functional.conv2d(reflected(maps, 1), first)).relu()
        maps = maps + normalized(functional.conv2d(reflected(inner, 1), second))
    for weight in (up1, up2):
        maps = normalized(functional.conv_transpose2d(maps, weight, stride=2, padding=1, output_padding=1)).relu()
    bias = network.layers[-2].bias
    torch.testing.assert_close(network(image), functional.conv2d(reflected(maps, 3), last, bias).tanh())


def test_norms_have_no_scales_and_the_last_bias_begins_at_0():
    network = ResidualTranslator(3, 2, width=4, blocks=1)
    assert [name for name, _ in network.named_parameters() if "bias" in name] == ["layers.16.bias"]
    assert all(parameter.dim() == 4 or not parameter.any() for parameter in network.parameters())


def test_other_sizes_are_padded_and_cut():
    network, image = ResidualTranslator(1, 1, width=4, blocks=1), torch.rand(1, 1, 13, 22)
    torch.testing.assert_close(network(image), network(padded(image, 4))[..., :13, :22])
    assert network(torch.rand(1, 1, 1, 4)).shape == (1, 1, 1, 4)


def test_both_ways_at_once_or_alone():
    both = BothWays(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1))
    a, b = torch.rand(2, 3, 2, 4, 4)
    both_ways = [both.a_to_b(a), both.b_to_a(b)]
    for found, expected in ((both(a, b), both_ways), (both(a), both_ways[:1]), (both(b=b), both_ways[1:])):
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected))
