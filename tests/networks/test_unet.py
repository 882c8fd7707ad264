import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu, relu

from lit_gans.networks.unet import UNet


def count(network):
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def tiny(image_size=16, **settings):
    torch.manual_seed(0)
    network = UNet(2, 3, image_size, 2, **settings)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):  # wide enough that every map tells
            nn.init.normal_(layer.weight, 0.0, 0.3)
    return network


def by_hand(unet, pictures, factors=()):
    """The forward of the paper's table: decoder map i times factors[i], then beside the encoder map of its size."""
    maps = []
    for _, convolution, norm in unet.encoder:
        maps.append(norm(convolution(leaky_relu(maps[-1], 0.2) if maps else pictures)))
    features = maps[-1]
    for index, (_, convolution, finish) in enumerate(unet.decoder):
        features = finish(convolution(relu(features)))
        features = features * factors[index] if index < len(factors) else features
        if index < len(maps) - 1:
            features = torch.cat([features, maps[-2 - index]], 1)
    return features


def drawn(unet, num, size):
    torch.manual_seed(2)
    return [torch.rand(num, *shape) for shape in unet.dropout_shapes(*size)]


def test_the_paper_s_network_has_its_exact_parameter_count():
    with torch.device("meta"):
        assert count(UNet(3, 3, 256)) == 54_413_955


@pytest.mark.parametrize(("norm", "has"), [("layer", True), ("batch", False)])
def test_convolutions_have_no_bias_where_a_norm_cancels_it(norm, has):
    unet = tiny(32, norm=norm)
    assert [layer[1].bias is not None for layer in unet.decoder] == [has] * 4 + [True]
    assert [layer[1].bias is not None for layer in unet.encoder[1:-1]] == [has] * 3


def test_without_uniform_numbers_it_is_deterministic_and_draws_nothing():
    unet, pictures = tiny().train(), torch.randn(2, 2, 16, 16)
    state = torch.get_rng_state()
    images = unet(pictures)
    assert torch.equal(images, unet(pictures))
    assert torch.equal(images, unet.eval()(pictures))
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(images, by_hand(unet, pictures))


@pytest.mark.parametrize("image_size", [(16, 16), (64, 64), (48, 80)])
def test_dropout_thins_each_number_of_three_maps_by_its_own_draw(image_size):
    unet, pictures = tiny(image_size), torch.randn(2, 2, *image_size)
    uniform = drawn(unet, 2, image_size)
    for numbers in uniform:
        numbers[:, :2] = torch.tensor([0.499, 0.5])[:, None, None]  # the last that drops, the first that doubles
    masks = [torch.where(numbers < 0.5, 0.0, 2.0) for numbers in uniform]
    torch.testing.assert_close(unet(pictures, uniform), by_hand(unet, pictures, masks))
    shapes = []
    for layer in unet.decoder[:3]:
        layer.register_forward_hook(lambda layer, inputs, features: shapes.append(tuple(features.shape[1:])))
    unet(pictures)
    assert unet.dropout_shapes(*image_size) == shapes


@pytest.mark.parametrize("norm", ["layer", "instance", "batch"])
def test_weights_begin_as_in_the_paper_s_code(norm):
    torch.manual_seed(0)
    unet = UNet(3, 3, 64, 32, norm=norm)
    vectors = {name: value for name, value in unet.named_parameters() if value.dim() == 1}
    scales = torch.cat([value for name, value in vectors.items() if name.endswith("weight")])
    assert scales.std().item() == pytest.approx(0.02, rel=0.1)
    assert scales.mean().item() == pytest.approx(1, abs=0.005)
    assert not any(value.any() for name, value in vectors.items() if name.endswith("bias"))
