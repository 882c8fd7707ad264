"""Grouped convolutions whose second derivatives are grouped convolutions, too.

PyTorch computes the second derivative of a convolution with a separate convolution for each group. A gradient penalty
of a depthwise layer with 768 channels thus launches thousands of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.precision import autocast_precision, without_autocast


class _Settings(NamedTuple):
    """Arguments of `torch.convolution` after the bias."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int


class GroupedConv2d(nn.Conv2d):
    """`nn.Conv2d` whose second derivative runs one convolution for all groups."""

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        return grouped_conv2d(features, self.weight, self.bias, self.stride, self.padding, self.groups)  # type: ignore[arg-type]


class GroupedConvTranspose2d(nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` whose second derivative runs one convolution for all groups."""

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:  # type: ignore[override]
        return grouped_conv_transpose2d(features, self.weight, self.bias, self.stride, self.padding, self.groups)  # type: ignore[arg-type]


def grouped_conv2d(
    features: Float[Tensor, "n a h w"],
    weight: Float[Tensor, "b c kh kw"],
    bias: Float[Tensor, " b"] | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
) -> Float[Tensor, "n b h2 w2"]:
    """Computes `torch.nn.functional.conv2d`. The second derivative runs one convolution for all groups."""
    return _grouped(functional.conv2d, features, weight, bias, stride, padding, groups)


def grouped_conv_transpose2d(
    features: Float[Tensor, "n a h w"],
    weight: Float[Tensor, "a c kh kw"],
    bias: Float[Tensor, " b"] | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
) -> Float[Tensor, "n b h2 w2"]:
    """Computes `torch.nn.functional.conv_transpose2d`. The second derivative runs one convolution for all groups."""
    return _grouped(functional.conv_transpose2d, features, weight, bias, stride, padding, groups)


def _grouped(
    function: Callable[..., Tensor],
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
) -> Tensor:
    if not _is_differentiated(features, weight, groups):
        return function(features, weight, bias, stride, padding, groups=groups)
    transposed = function is functional.conv_transpose2d
    settings = _Settings(stride, padding, (1, 1), transposed, (0, 0), groups)
    # autocast does not convert the arguments of an `autograd.Function`
    features, weight = autocast_precision(features), autocast_precision(weight)
    bias = None if bias is None else autocast_precision(bias)
    return _Convolution.apply(features, weight, bias, settings)  # type: ignore[no-any-return, no-untyped-call]


def _is_differentiated(features: Tensor, weight: Tensor, groups: int) -> bool:
    """Returns whether a grouped convolution is part of an autograd graph.

    Returns False in compiled and exported graphs, which use PyTorch's convolution.
    """
    if groups == 1 or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return features.requires_grad or weight.requires_grad


class _Convolution(torch.autograd.Function):
    """Convolution with a differentiable gradient. Every derivative has the precision of the forward pass."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, settings: _Settings) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.settings = settings
        with without_autocast(features):
            return torch.convolution(features, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        features, weight = ctx.saved_tensors
        return *_gradients(gradient, features, weight, ctx.settings, ctx.needs_input_grad[:3]), None


class _ConvolutionGradients(torch.autograd.Function):
    """The gradients of a convolution with respect to its features, weight and bias."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, features: Tensor, weight: Tensor, settings: _Settings, mask: Any) -> Any:
        ctx.save_for_backward(gradient, features, weight)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        return _convolution_backward(gradient, features, weight, settings, mask)

    @staticmethod
    def backward(ctx: Any, of_features: Any, of_weight: Any, of_bias: Any) -> tuple[Any, ...]:  # type: ignore[override]
        gradient, features, weight = ctx.saved_tensors
        settings, wanted = ctx.settings, ctx.needs_input_grad
        by_gradient = by_features = by_weight = None
        if wanted[0] and of_features is not None:
            by_gradient = _Convolution.apply(of_features, weight, of_bias, settings)  # type: ignore[no-untyped-call]
        elif wanted[0] and of_bias is not None:
            by_gradient = of_bias[:, None, None].expand_as(gradient)
        if wanted[0] and of_weight is not None:
            other = _Convolution.apply(features, of_weight, None, settings)  # type: ignore[no-untyped-call]
            by_gradient = other if by_gradient is None else by_gradient + other
        if wanted[1] and of_weight is not None:
            by_features = _gradients(gradient, features, of_weight, settings, (True, False, False))[0]
        if wanted[2] and of_features is not None:
            by_weight = _gradients(gradient, of_features, weight, settings, (False, True, False))[1]
        return by_gradient, by_features, by_weight, None, None


def _gradients(gradient: Tensor, features: Tensor, weight: Tensor, settings: _Settings, mask: Any) -> Any:
    """Returns the gradients with respect to features, weight and bias.

    They are differentiable if gradients are enabled.
    """
    if torch.is_grad_enabled():  # the backward pass is differentiated again
        return _ConvolutionGradients.apply(gradient, features, weight, settings, mask)  # type: ignore[no-untyped-call]
    return _convolution_backward(gradient, features, weight, settings, mask)


def _convolution_backward(gradient: Tensor, features: Tensor, weight: Tensor, settings: _Settings, mask: Any) -> Any:
    bias_size = gradient.shape[1:2]
    return torch.ops.aten.convolution_backward(gradient, features, weight, bias_size, *settings, mask)
