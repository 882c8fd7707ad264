import pytest
import torch
from torch import nn
from torch.nn import functional

from lit_gans.networks.blocks import (
    ConditionalBatchNorm2d,
    PooledConv2d,
    Residual,
    ScoreHead,
    UpsampledConv2d,
    convolution,
    is_cheap,
    normalization,
    padded,
)

SPATIAL = [(4, 2, 1, False), (4, 2, 1, True), (3, 1, 1, False)]  # kernel size, stride, padding, transposed


@pytest.mark.parametrize(("kernel_size", "stride", "padding", "transposed"), SPATIAL)
@pytest.mark.parametrize("block", ["grouped", "separable", "inverted_residual"])
@pytest.mark.parametrize("channels_out", [3, 5])
def test_cheap_blocks_make_maps_of_the_plain_convolution_s_size(
    block, channels_out, kernel_size, stride, padding, transposed
):
    features = torch.randn(2, 3, 7, 10)
    plain, cheap = (
        convolution(name, 3, channels_out, kernel_size, stride, padding, True, transposed)(features).shape
        for name in ("plain", block)
    )
    assert cheap == plain


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


def test_a_separable_block_is_a_depthwise_convolution_and_a_mixture_of_channels():
    torch.manual_seed(0)
    block, features = convolution("separable", 2, 3, 3, 1, 1, True), torch.randn(2, 2, 5, 5)
    alone = [nn.functional.conv2d(features[:, [c]], block[0].weight[[c]], padding=1) for c in range(2)]
    mixed = torch.einsum("oc,nchw->nohw", block[1].weight[:, :, 0, 0], torch.cat(alone, 1))
    torch.testing.assert_close(block(features), mixed + block[1].bias[:, None, None])
    assert block[0].bias is None


@pytest.mark.parametrize(
    ("channels_out", "geometry", "residual"), [(3, (3, 1, 1), True), (4, (3, 1, 1), False), (3, (4, 2, 1), False)]
)
def test_an_inverted_residual_adds_its_input_where_the_maps_are_equal(channels_out, geometry, residual):
    block, features = convolution("inverted_residual", 3, channels_out, *geometry, bias=True), torch.randn(2, 3, 6, 6)
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    assert isinstance(block, Residual) == residual
    assert torch.equal(block(features), features if residual else torch.zeros_like(block(features)))


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
    without = ScoreHead(6)
    expected = (features @ without.weight.T + without.bias).squeeze(1)
    torch.testing.assert_close(without(features, labels), expected)
    nn.init.normal_(head.projection.weight)
    for score, row, label in zip(head(features, labels), features, labels.tolist(), strict=True):
        expected = head.weight[0] @ row + head.bias[0] + head.projection.weight[label] @ row
        torch.testing.assert_close(score, expected)


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


def test_padding_reflects_as_often_as_it_takes():
    image = torch.tensor([[1.0, 2.0, 3.0]])[None, None]
    assert padded(image, 8)[0, 0, 0].tolist() == [1, 2, 3, 2, 1, 2, 3, 2]
    assert padded(image, 8).shape == (1, 1, 8, 8)
    whole = torch.rand(1, 2, 12, 20)
    assert torch.equal(padded(whole, 4), whole)
    expected = torch.nn.functional.pad(whole, (0, 4, 0, 4), mode="reflect")
    assert torch.equal(padded(whole, 8), expected)
