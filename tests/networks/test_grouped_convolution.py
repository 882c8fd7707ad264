"""Grouped convolutions have PyTorch's values and derivatives, and a second derivative does not depend on the groups."""

import pytest
import torch
from torch import nn

from lit_gans.common.operations import OperationCounter
from lit_gans.networks import grouped_convolution
from lit_gans.networks.blocks import convolution
from lit_gans.networks.grouped_convolution import GroupedConv2d, GroupedConvTranspose2d
from lit_gans.networks.r3gan import R3GANDiscriminator, Resample
from lit_gans.training.penalties import r1_penalty

LAYERS = {
    "grouped": lambda: GroupedConv2d(6, 9, 3, 1, 1, groups=3),
    "strided": lambda: GroupedConv2d(6, 12, (4, 2), 2, 1, groups=2, bias=False),
    "depthwise": lambda: GroupedConv2d(6, 6, 3, 1, 1, groups=6),
    "whole map": lambda: GroupedConv2d(6, 6, 8, groups=6),
    "transposed": lambda: GroupedConvTranspose2d(6, 9, 4, 2, 1, groups=3),
    "transposed without bias": lambda: GroupedConvTranspose2d(6, 6, 4, 2, 1, groups=6, bias=False),
    "halved": lambda: Resample(doubles=False),
    "doubled": lambda: Resample(doubles=True),
}


@pytest.fixture
def plain(monkeypatch):
    """Returns a function after whose call the layers use PyTorch's derivatives."""
    return lambda: monkeypatch.setattr(grouped_convolution, "_is_differentiated", lambda *_: False)


def derivatives(layer, features):
    """The outputs, the gradient, and the gradient of a penalty on it with respect to everything, three times over."""
    parameters = [features, *layer.parameters()]
    outputs = layer(features)
    found, value = [outputs], outputs.pow(3).sum()
    for _ in range(3):
        gradients = torch.autograd.grad(value, parameters, create_graph=True)
        found += gradients
        value = sum(gradient.pow(2).sum() for gradient in gradients)
    return found


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_three_derivatives_are_pytorchs(kind, memory_format, plain):
    torch.manual_seed(0)
    layer = LAYERS[kind]().double().to(memory_format=memory_format)
    features = torch.randn(2, 6, 8, 8, dtype=torch.double).to(memory_format=memory_format).requires_grad_()
    ours = derivatives(layer, features)
    plain()
    for one, other in zip(ours, derivatives(layer, features), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13 * other.abs().max().item())


def penalty(groups):
    torch.manual_seed(0)
    network = nn.Sequential(GroupedConv2d(8, 16, 3, 1, 1, groups=groups), nn.Tanh(), nn.Flatten(), nn.Linear(1024, 1))
    images = torch.randn(2, 8, 8, 8)
    with OperationCounter() as counter:
        r1_penalty(network, images).backward()
    return counter.operations


def test_a_second_derivative_has_as_many_operations_with_8_groups_as_with_2(plain):
    assert penalty(8) == penalty(2)
    plain()
    assert penalty(8)["convolution"] == penalty(2)["convolution"] + 6, "one more for each group in PyTorch"


def test_a_first_derivative_is_one_operation():
    layer, features = LAYERS["grouped"](), torch.randn(2, 6, 8, 8)
    with OperationCounter() as counter:
        layer(features).sum().backward()
    assert counter.operations["convolution"] == counter.operations["convolution_backward"] == 1


@pytest.mark.parametrize("settings", [{"width": 16, "group_width": 4}, {"width": 4}])
def test_r1_of_r3gan_is_pytorchs(settings, plain):
    torch.manual_seed(0)
    network = R3GANDiscriminator(1, 16, blocks=1, **settings).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter, 0, 0.1)  # the last convolution of a block is zero at first
    images = torch.randn(2, 1, 16, 16, dtype=torch.double)

    def gradients():
        return torch.autograd.grad(r1_penalty(network, images), [*network.parameters()], allow_unused=True)

    ours = gradients()
    plain()
    for one, other in zip(ours, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("block", ["grouped", "separable", "inverted_residual"])
@pytest.mark.parametrize("transposed", [False, True])
def test_lightweight_blocks_have_them(block, transposed):
    layers = convolution(block, 8, 8, 4, 2, 1, bias=True, transposed=transposed)
    grouped = [layer for layer in layers.modules() if getattr(layer, "groups", 1) > 1]
    assert [type(layer) for layer in grouped] == [GroupedConvTranspose2d if transposed else GroupedConv2d]


def test_autocast_computes_every_derivative_in_half_precision_and_a_float32_part_in_float32():
    layer, features = LAYERS["grouped"](), torch.randn(2, 6, 8, 8, requires_grad=True)
    seen = []

    class Watched(OperationCounter):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "convolution" in str(func):
                seen.append({arg.dtype for arg in args if isinstance(arg, torch.Tensor)})
            return super().__torch_dispatch__(func, types, args, kwargs)

    def differentiate_twice(enabled):
        seen.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16), Watched():
            with torch.autocast("cpu", enabled=enabled):
                outputs = layer(features)
                (gradient,) = torch.autograd.grad(outputs.float().square().sum(), features, create_graph=True)
            gradient.square().sum().backward()  # inside autocast, as in a training step
        return outputs.dtype

    assert differentiate_twice(enabled=True) == torch.bfloat16
    assert len(seen) >= 4
    assert seen == [{torch.bfloat16}] * len(seen)
    assert differentiate_twice(enabled=False) == torch.float32
    assert seen == [{torch.float32}] * len(seen)
    assert layer.weight.grad.dtype == features.grad.dtype == torch.float32


def test_export_sees_pytorchs_convolution():
    exported = torch.export.export(LAYERS["grouped"](), (torch.randn(2, 6, 8, 8),))
    assert "conv2d" in str(exported.graph)
