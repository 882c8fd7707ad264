import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, interpolate, relu

from lit_gans.networks.resnet import ResNetDiscriminator, ResNetGenerator

LABELS = torch.tensor([0, 2, 1])


def count(network):
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def shaken(network):
    """The network with every parameter drawn anew: its biases and the tables of its classes begin all alike."""
    torch.manual_seed(1)
    for parameter in network.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return network


def plain(layer, features):
    """A 3x3 convolution without the resampling that is part of the layer."""
    return conv2d(features, layer.weight, layer.bias, padding=1)


def test_the_paper_s_networks_have_their_exact_parameter_counts():
    with torch.device("meta"):
        assert count(ResNetGenerator(128, 3, 32)) == 4_276_739
        assert count(ResNetDiscriminator(3, 32)) == 1_053_825


@pytest.mark.parametrize("num_classes", [0, 3])
def test_an_up_block_is_the_paper_s_which_doubles_first(num_classes):
    block = shaken(ResNetGenerator(5, 1, 64, 2, num_classes=num_classes)).blocks[0].eval()
    features, labels = torch.randn(3, 32, 4, 4), (LABELS,) if num_classes else ()
    branch = plain(block.conv_1, interpolate(relu(block.norm_1(features, *labels)), scale_factor=2))
    branch = block.conv_2(relu(block.norm_2(branch, *labels)))
    skip = block.skip(interpolate(features, scale_factor=2))
    torch.testing.assert_close(block(features, labels), branch + skip)


@pytest.mark.parametrize(("index", "halves"), [(0, True), (1, True), (2, False)])
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_a_down_block_is_the_paper_s_which_halves_last(norm, index, halves):
    torch.manual_seed(0)
    block = shaken(ResNetDiscriminator(3, 32, 4, norm=norm)).blocks[index]
    features = torch.randn(2, 3 if index == 0 else 4, 8, 8)
    branch = features if index == 0 else relu(block.norm_1(features))  # the first block sees images
    branch = plain(block.conv_2, relu(block.norm_2(block.conv_1(branch))))
    skip = block.skip(features)
    expected = avg_pool2d(branch, 2) + avg_pool2d(skip, 2) if halves else branch + skip
    torch.testing.assert_close(block(features), expected, rtol=1e-5, atol=1e-5)
    assert isinstance(block.skip, nn.Identity) == (not halves)


def test_a_critic_averages_its_last_map():
    total, mean = (shaken(ResNetDiscriminator(3, 16, 4, sum_features=each)) for each in (True, False))
    images = torch.randn(2, 3, 16, 16)
    bias = mean.head.bias.sum()
    torch.testing.assert_close(mean(images) - bias, (total(images) - bias) / 16)


def test_the_ends_are_the_paper_s():
    generator, discriminator = shaken(ResNetGenerator(5, 3, 16, 4)).eval(), shaken(ResNetDiscriminator(3, 16, 4))
    latents, images = torch.randn(2, 5), torch.randn(2, 3, 16, 16)
    features = (latents @ generator.stem.weight.T + generator.stem.bias).view(2, 4, 4, 4)
    for block in generator.blocks:
        features = block(features, ())
    expected = torch.tanh(generator.to_image(relu(generator.norm(features))))
    torch.testing.assert_close(generator(latents), expected)
    features = images
    for block in discriminator.blocks:
        features = block(features)
    scores = discriminator.head(relu(features).flatten(2).sum(2))
    torch.testing.assert_close(discriminator(images), scores)


@pytest.mark.parametrize(
    ("image_size", "generator_widths", "discriminator_widths"),
    [
        (32, [4, 4, 4, 4], [1, 4, 4, 4, 4]),
        (48, [32, 16, 8, 4], [1, 4, 8, 16, 32, 64]),
        (64, [64, 32, 16, 8, 4], [1, 4, 8, 16, 32, 64]),
        (128, [64, 64, 32, 16, 8, 4], [1, 4, 8, 16, 32, 64, 64]),
    ],
)
def test_maps_widen_beyond_32_pixels_up_to_16_times_the_width(image_size, generator_widths, discriminator_widths):
    with torch.device("meta"):
        generator, discriminator = ResNetGenerator(5, 1, image_size, 4), ResNetDiscriminator(1, image_size, 4)
    for blocks, widths in ((generator.blocks, generator_widths), (discriminator.blocks, discriminator_widths)):
        assert [blocks[0].skip.in_channels] + [block.conv_2.out_channels for block in blocks] == widths
    inside = [block.conv_1.out_channels for block in discriminator.blocks]
    assert inside == [4, *discriminator_widths[1:-1]], "a block widens at its end, the first at its beginning"
    assert [block.conv_1.out_channels for block in generator.blocks] == generator_widths[1:]


@pytest.mark.parametrize(("image_size", "last_map"), [(16, 4), (32, 8), (48, 3), (64, 2), (128, 4), (256, 4)])
def test_the_discriminator_sums_over_a_small_map(image_size, last_map):
    with torch.device("meta"):
        features = ResNetDiscriminator(1, image_size, 2).blocks(torch.empty(1, 1, image_size, image_size))
    assert features.shape[2:] == (last_map, last_map)


def test_weights_have_glorot_s_deviation_with_the_gain_of_a_relu_inside_and_biases_begin_at_zero():
    torch.manual_seed(0)
    for network in (ResNetGenerator(16, 3, 32, 16), ResNetDiscriminator(3, 32, 16)):
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                area = layer.weight[0, 0].numel()
                gain = 2**0.5 if "conv_" in name else 1
                bound = gain * (6 / (area * sum(layer.weight.shape[:2]))) ** 0.5
                assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.2 if "head" in name else 0.1), name
                assert layer.weight.abs().max().item() <= bound
                assert not layer.bias.any(), name
