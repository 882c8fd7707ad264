import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu

from lit_gans.common.errors import RefusedInput
from lit_gans.networks.patchgan import PatchGAN


def count(network):
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def support(depth, image_size, row, column):
    """Top, bottom, left and right of the pixels on which one logit depends, in the image and in the picture."""
    torch.manual_seed(0)
    network = PatchGAN(1, 1, image_size, 2, depth, norm="none").double()
    inputs = torch.randn(2, 1, 1, image_size, image_size, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(*inputs)[0, row, column], inputs)
    edges = []
    for pixels in gradient[:, 0, 0].ne(0):
        rows, columns = (pixels.any(axis).nonzero().squeeze(1) for axis in (1, 0))
        assert pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all(), "a whole rectangle"
        edges.append((rows[0].item(), rows[-1].item() + 1, columns[0].item(), columns[-1].item() + 1))
    assert edges[0] == edges[1]
    return edges[0]


def test_the_paper_s_network_has_its_exact_parameter_count():
    with torch.device("meta"):
        assert count(PatchGAN(3, 3, 256)) == 2_768_705


@pytest.mark.parametrize(("depth", "pixels"), [(1, 16), (2, 34), (3, 70)])
def test_one_logit_sees_a_square_of_exactly_the_receptive_field(depth, pixels):
    image_size = 128 if depth == 3 else 64
    middle = (image_size // 2**depth - 2) // 2
    top, bottom, left, right = support(depth, image_size, middle, middle)
    assert top > 0
    assert bottom < image_size, "no edge of the image cuts it"
    assert (bottom - top, right - left) == (pixels, pixels)


def test_images_that_are_too_small_are_refused():
    with pytest.raises(
        RefusedInput, match=r"depth=3 \(patch_depth of a GAN\): an image of 23 pixels is too small; use a smaller depth"
    ):
        PatchGAN(1, 1, 23, 2, 3)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_every_convolution_but_the_first_and_the_last_has_a_norm(norm):
    network = PatchGAN(1, 1, 64, 2, norm=norm)
    norms = [index for index, layer in enumerate(network.layers) if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
    convolutions = [index for index, layer in enumerate(network.layers) if isinstance(layer, nn.Conv2d)]
    assert [index + 1 for index in convolutions[1:-1]] == norms
    biases = [network.layers[index].bias is not None for index in convolutions]
    assert biases == [True] + [norm == "layer"] * 3 + [True]


def test_maps_widen_to_8_times_the_width_and_weights_begin_as_in_the_paper():
    torch.manual_seed(0)
    network = PatchGAN(1, 3, 256, 8, depth=4)
    layers = [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]
    assert [layer.in_channels for layer in layers] == [4, 8, 16, 32, 64, 64]
    assert [layer.stride[0] for layer in layers] == [2, 2, 2, 2, 1, 1]
    assert [layer.weight.std().item() for layer in layers] == pytest.approx([0.02] * 6, rel=0.1)


@pytest.mark.parametrize(("image_size", "depth", "logits"), [(16, 1, 6), (24, 3, 1), (33, 3, 2)])
def test_the_forward_is_that_of_its_convolutions_on_picture_and_image(image_size, depth, logits):
    torch.manual_seed(0)
    network = PatchGAN(2, 3, image_size, 2, depth, norm="none")
    image, picture = torch.randn(2, 3, image_size, image_size), torch.randn(2, 2, image_size, image_size)
    *hidden, last = (layer for layer in network.layers if isinstance(layer, nn.Conv2d))
    features = torch.cat([picture, image], 1)
    for layer in hidden:
        features = leaky_relu(layer(features), 0.2)
    found = network(image, picture)
    assert found.shape == (2, logits, logits)
    torch.testing.assert_close(found, last(features)[:, 0])


@pytest.mark.parametrize("norm", ["batch", "layer", "instance"])
def test_biases_begin_at_0_and_scales_around_1_as_in_pix2pix_and_cyclegan(norm):
    torch.manual_seed(0)
    network = PatchGAN(1, 3, 64, 64, norm=norm)
    norms = [layer for layer in network.layers if isinstance(layer, nn.modules.batchnorm._NormBase | nn.GroupNorm)]
    scales, shifts = (torch.cat([getattr(layer, name) for layer in norms]) for name in ("weight", "bias"))
    assert scales.mean().item() == pytest.approx(1, abs=0.005)
    assert scales.std().item() == pytest.approx(0.02, rel=0.1)
    biases = [layer.bias for layer in network.layers if isinstance(layer, nn.Conv2d) and layer.bias is not None]
    assert len(biases) >= 2
    assert not any(tensor.any() for tensor in (*biases, shifts))


def test_other_discriminators_keep_torch_s_biases_or_have_norms_without_scales():
    torch.manual_seed(0)
    first = PatchGAN(0, 3, 64, 64, zero_biases=False).layers[0]
    bound = (3 * 4 * 4) ** -0.5  # uniform within 1 / sqrt(fan-in)
    assert 0.9 * bound < first.bias.abs().max() <= bound
    vectors = [name for name, value in PatchGAN(0, 3, 64, 2, affine=False).named_parameters() if value.dim() == 1]
    assert vectors == ["layers.0.bias", "layers.11.bias"]
