import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from lit_gans.networks.blocks import (
    ConditionalBatchNorm2d,
    PooledConv2d,
    Residual,
    ScoreHead,
    UpsampledConv2d,
    convolution,
    is_cheap,
    normalization,
)

SPATIAL = [(4, 2, 1, False), (4, 2, 1, True), (3, 1, 1, False)]  # kernel size, stride, padding, transposed


def cost(block, kernel_size, stride, padding, transposed):
    """Parameters, and multiply-adds on an 8x8 map."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        layer = convolution(block, 64, 64, kernel_size, stride, padding, False, transposed)
        layer(torch.empty(1, 64, 8, 8))
    return sum(parameter.numel() for parameter in layer.parameters()), counter.get_total_flops() // 2


@pytest.mark.parametrize(("kernel_size", "stride", "padding", "transposed"), SPATIAL)
@pytest.mark.parametrize("block", ["grouped", "separable", "inverted_residual"])
@pytest.mark.parametrize("channels_out", [3, 5])
def test_cheap_blocks_make_maps_of_the_plain_convolution_s_size(
    block, channels_out, kernel_size, stride, padding, transposed
):
    for height, width in ((8, 8), (7, 10)):
        plain, cheap = (
            convolution(name, 3, channels_out, kernel_size, stride, padding, True, transposed)(
                torch.randn(2, 3, height, width)
            )
            for name in ("plain", block)
        )
        assert cheap.shape == plain.shape


@pytest.mark.parametrize(("kernel_size", "stride", "padding", "transposed"), SPATIAL)
def test_cheap_blocks_have_far_fewer_parameters_and_multiply_adds(kernel_size, stride, padding, transposed):
    geometry = kernel_size, stride, padding, transposed
    plain, separable, inverted = (cost(block, *geometry) for block in ("plain", "separable", "inverted_residual"))
    assert plain[0] == 64 * 64 * kernel_size**2
    assert separable[0] == 64 * kernel_size**2 + 64 * 64
    assert all(cheap < full / (3 if transposed else 6) for cheap, full in zip(separable, plain, strict=True))
    assert all(cheap < full * 0.7 for cheap, full in zip(inverted, plain, strict=True))
    assert all(4 * cheap == full for cheap, full in zip(cost("grouped", *geometry), plain, strict=True))


@pytest.mark.parametrize(
    ("channels_in", "channels_out", "groups"), [(8, 12, 4), (6, 4, 2), (4, 3, 1), (3, 3, 1), (512, 256, 4)]
)
def test_a_grouped_convolution_sees_only_the_channels_of_its_group(channels_in, channels_out, groups):
    layer = convolution("grouped", channels_in, channels_out, 3, 1, 1, False)
    assert (layer.groups, is_cheap(layer)) == (groups, groups > 1)
    features = torch.zeros(1, channels_in, 5, 5)
    features[:, : channels_in // groups] = 1  # the first group alone
    reached = layer(features).detach().abs().sum((0, 2, 3)) > 0
    assert reached.tolist() == [index < channels_out // groups for index in range(channels_out)]


@pytest.mark.parametrize(("channels_in", "channels_out"), [(3, 8), (8, 3), (5, 5)])
def test_an_inverted_residual_is_wide_inside_by_its_narrower_end(channels_in, channels_out):
    layers = convolution("inverted_residual", channels_in, channels_out, 4, 2, 1, True)
    depthwise, wide = layers[2], 2 * min(channels_in, channels_out)
    assert (depthwise.in_channels, depthwise.out_channels, depthwise.groups) == (wide, wide, wide)


def test_a_separable_block_is_a_depthwise_convolution_and_a_mixture_of_channels():
    torch.manual_seed(0)
    block, features = convolution("separable", 2, 3, 3, 1, 1, True), torch.randn(2, 2, 5, 5)
    alone = [nn.functional.conv2d(features[:, [c]], block[0].weight[[c]], padding=1) for c in range(2)]
    mixed = torch.einsum("oc,nchw->nohw", block[1].weight[:, :, 0, 0], torch.cat(alone, 1))
    torch.testing.assert_close(block(features), mixed + block[1].bias[:, None, None])
    assert block[0].bias is None


@pytest.mark.parametrize(
    ("block", "biases"), [("plain", []), ("separable", []), ("inverted_residual", ["0", "2", "4.fc1", "4.fc2"])]
)
def test_bias_is_that_of_the_last_convolution(block, biases):
    without, with_bias = (convolution(block, 2, 3, 4, 2, 1, bias) for bias in (False, True))
    names = {name for name, _ in with_bias.named_parameters()} - {name for name, _ in without.named_parameters()}
    assert len(names) == 1
    assert [name.removesuffix(".bias") for name, _ in without.named_parameters() if name.endswith("bias")] == biases


@pytest.mark.parametrize(
    ("channels_out", "geometry", "residual"), [(3, (3, 1, 1), True), (4, (3, 1, 1), False), (3, (4, 2, 1), False)]
)
def test_an_inverted_residual_adds_its_input_where_the_maps_are_equal(channels_out, geometry, residual):
    block, features = convolution("inverted_residual", 3, channels_out, *geometry, bias=True), torch.randn(2, 3, 6, 6)
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    assert isinstance(block, Residual) == residual
    assert torch.equal(block(features), features if residual else torch.zeros_like(block(features)))


def test_cheap_are_depthwise_and_1x1_convolutions():
    cheap = [layer for layer in convolution("inverted_residual", 3, 4, 3, 1, 1, True).modules() if is_cheap(layer)]
    assert len(cheap) == 5, "expansion, depthwise, two of squeeze-and-excitation, projection"
    assert is_cheap(nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=4))
    assert not any(is_cheap(layer) for layer in (nn.Conv2d(3, 3, 3), nn.ConvTranspose2d(3, 3, 4), nn.Linear(3, 3)))


@pytest.mark.parametrize(
    ("norm", "axes"),
    [("batch", (0, 2, 3)), ("layer", (1, 2, 3)), ("instance", (2, 3))],
)
def test_normalizations_take_their_statistics_from_the_right_axes(norm, axes):
    torch.manual_seed(0)
    layer, features = normalization(norm, 3), torch.randn(4, 3, 5, 5) * 3 + 2
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    mean, variance = features.mean(axes, keepdim=True), features.var(axes, correction=0, keepdim=True)
    expected = (features - mean) / (variance + 1e-5).sqrt()
    expected = expected * layer.weight[:, None, None] + layer.bias[:, None, None]
    torch.testing.assert_close(layer(features), expected)


def test_conditional_batch_norm_scales_and_shifts_by_the_class():
    torch.manual_seed(0)
    layer, labels = ConditionalBatchNorm2d(3, 5), torch.tensor([4, 0, 4, 2])
    features = torch.randn(4, 3, 2, 2) * 2 + 1
    mean, variance = features.mean((0, 2, 3)), features.var((0, 2, 3), correction=0)
    normalized = (features - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
    torch.testing.assert_close(
        layer(features, labels), normalized, msg="begins as batch norm, the same for all classes"
    )
    nn.init.normal_(layer.scale.weight)
    nn.init.normal_(layer.shift.weight)
    for image, label, ours in zip(normalized, labels.tolist(), layer(features, labels), strict=True):
        expected = image * layer.scale.weight[label][:, None, None] + layer.shift.weight[label][:, None, None]
        torch.testing.assert_close(ours, expected)


def test_the_head_is_a_dense_layer_and_a_projection_on_the_class():
    torch.manual_seed(0)
    head, features, labels = ScoreHead(6, 4), torch.randn(3, 6), torch.tensor([3, 0, 3])
    nn.init.normal_(head.projection.weight)
    for score, row, label in zip(head(features, labels), features, labels.tolist(), strict=True):
        expected = head.weight[0] @ row + head.bias[0] + head.projection.weight[label] @ row
        torch.testing.assert_close(score, expected)


def test_the_head_without_classes_is_torch_s_dense_layer_and_ignores_labels():
    torch.manual_seed(0)
    head, features = ScoreHead(6), torch.randn(3, 6)
    scores = head(features)
    assert torch.equal(scores, nn.functional.linear(features, head.weight, head.bias).squeeze(1))
    assert torch.equal(scores, head(features, torch.tensor([0, 1, 2])))
    assert set(head.state_dict()) == {"weight", "bias"}
    assert head(features[:1]).shape == (1,)


def derivatives(function, layer, features):
    """The result of a function, its gradients, and those of the squared gradient of its input."""
    features = features.clone().requires_grad_(True)
    result = function(features)
    inputs = features, layer.weight, layer.bias
    gradients = torch.autograd.grad(result.square().sum(), inputs, create_graph=True)
    return result, *gradients, *torch.autograd.grad(gradients[0].square().sum(), inputs)


@pytest.mark.parametrize("size", [(4, 4), (6, 2)])
@pytest.mark.parametrize(
    ("fused", "separate"),
    [
        (UpsampledConv2d, lambda convolve, features: convolve(functional.interpolate(features, scale_factor=2.0))),
        (PooledConv2d, lambda convolve, features: functional.avg_pool2d(convolve(features), 2)),
    ],
)
def test_resampling_in_a_convolution_has_the_values_and_both_derivatives_of_separate_steps(fused, separate, size):
    torch.manual_seed(0)
    layer = fused(3, 5).double()
    features = torch.randn(2, 3, *size, dtype=torch.double)

    def convolve(images):
        return functional.conv2d(images, layer.weight, layer.bias, padding=1)

    found = derivatives(layer, layer, features)
    torch.testing.assert_close(found, derivatives(lambda images: separate(convolve, images), layer, features))


@pytest.mark.parametrize(("fused", "saving"), [(UpsampledConv2d, 9 / 4), (PooledConv2d, 36 / 16)])
def test_resampling_in_a_convolution_saves_products(fused, saving):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        separate = nn.Conv2d(2, 2, 3, padding=1)(torch.empty(1, 2, 16, 16))
        before = counter.get_total_flops()
        fused(2, 2)(torch.empty(1, 2, 8, 8) if fused is UpsampledConv2d else separate)
    assert before == saving * (counter.get_total_flops() - before)
