"""Residual networks of R3GAN (Huang et al. 2024, section 3 and appendix), without normalization.

Each resolution is a stage of residual blocks. The lowest resolution is 4x4 if the image size is a power of two. Under
autocast, the stages with the highest resolutions compute in half precision, and all other stages compute in float32.

Shapes: N is the batch size, Z the latent size, C the number of image channels, K the number of channels of a stage, H
and W are height and width.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import autocast_precision, full_precision, without_autocast
from lit_gans.common.size import Size
from lit_gans.networks.blocks import coarsest_map
from lit_gans.networks.grouped_convolution import GroupedConv2d, grouped_conv2d, grouped_conv_transpose2d

_SMALLEST = 4
_WIDEST = 768
_EXPANSION = 2
_SLOPE = 0.2
_GAIN = (2 / (1 + _SLOPE**2)) ** 0.5  # gain of the leaky ReLU
_NUM_HALF = 4  # maximum number of stages that compute in half precision; the lowest-resolution stage never does


def _widths(doublings: int, width: int | None, constant_until: int) -> list[int]:
    """Returns the number of channels of each stage, from the lowest to the highest resolution."""
    if constant_until < _SMALLEST or constant_until.bit_count() != 1:
        raise RefusedInput(f"constant_until={constant_until} must be 4, 8, 16 or a larger power of two.")
    beyond = max(1, (_SMALLEST << doublings) // constant_until)
    finest = width or _WIDEST // beyond
    return [finest * min(2**scale, beyond) for scale in reversed(range(doublings + 1))]


def _halves(num: int) -> list[bool]:
    """Returns whether each stage computes in half precision, from the lowest to the highest resolution."""
    return [index >= max(1, num - _NUM_HALF) for index in range(num)]


def _scaled(layer: nn.Module, fan_in: int, gain: float = 1.0) -> nn.Module:
    """Initializes the weights of a layer from N(0, gain^2 / fan_in) (He et al. 2015) and its biases with zeros."""
    for name, parameter in layer.named_parameters():
        with torch.no_grad():
            parameter.zero_() if name == "bias" else parameter.normal_(0, gain * fan_in**-0.5)
    return layer


class _Block(nn.Module):
    """Residual block with an inverted bottleneck: 1x1 expansion, grouped 3x3 convolution, 1x1 projection.

    The projection is initialized with zeros. The weights of the other two convolutions are scaled by num_blocks^(-1/4),
    so that the sum over all blocks neither grows nor vanishes with depth (Fixup: Zhang et al. 2019).
    """

    def __init__(self, channels: int, num_blocks: int, group_width: int) -> None:
        super().__init__()
        groups, wide = max(1, channels // group_width), _EXPANSION * channels
        if wide % groups:
            raise RefusedInput(
                f"width={channels} must be a multiple of group_width={group_width}, or smaller than group_width."
            )
        gain = _GAIN * num_blocks**-0.25
        self.expand = _scaled(nn.Conv2d(channels, wide, 1), channels, gain)
        self.mix = _scaled(GroupedConv2d(wide, wide, 3, padding=1, groups=groups), 9 * wide // groups, gain)
        self.project = _scaled(nn.Conv2d(wide, channels, 1, bias=False), wide, 0.0)

    def forward(self, features: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
        branch = functional.leaky_relu(self.expand(features), _SLOPE)
        return features + self.project(functional.leaky_relu(self.mix(branch), _SLOPE))


class Resample(nn.Module):
    """Upsamples or downsamples a feature map by 2 with the bilinear filter (1, 3, 3, 1) and zero padding."""

    kernel: Tensor

    def __init__(self, doubles: bool) -> None:
        super().__init__()
        self.doubles = doubles
        taps = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("kernel", torch.outer(taps, taps) / (16 if doubles else 64), persistent=False)

    def forward(self, features: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h2 w2"]:
        channels = features.shape[1]
        kernel = self.kernel.to(features.dtype).expand(channels, 1, -1, -1)
        resample = grouped_conv_transpose2d if self.doubles else grouped_conv2d
        return resample(features, kernel, None, (2, 2), (1, 1), channels)


def _upsample(wide: int, narrow: int) -> list[nn.Module]:
    change = [] if wide == narrow else [_scaled(nn.Conv2d(wide, narrow, 1, bias=False), wide)]
    return [*change, Resample(doubles=True)]


def _downsample(narrow: int, wide: int) -> list[nn.Module]:
    change = [] if wide == narrow else [_scaled(nn.Conv2d(narrow, wide, 1, bias=False), narrow)]
    return [Resample(doubles=False), *change]


class _FromLatents(nn.Module):
    """Scales a learned basis of lowest-resolution feature maps by a linear function of the latents."""

    def __init__(self, latent_dim: int, channels: int, coarsest: tuple[int, int]) -> None:
        super().__init__()
        self.basis = nn.Parameter(torch.randn(channels, *coarsest))
        self.linear = _scaled(nn.Linear(latent_dim, channels, bias=False), latent_dim)

    def forward(self, latents: Float[Tensor, "n z"]) -> Float[Tensor, "n k h w"]:
        return self.basis * self.linear(latents)[:, :, None, None]


class _ToFeatures(nn.Module):
    """Reduces each channel of the lowest-resolution map to a learned weighted sum, followed by a linear layer."""

    def __init__(self, channels: int, features: int, coarsest: tuple[int, int]) -> None:
        super().__init__()
        depthwise = GroupedConv2d(channels, channels, coarsest, groups=channels, bias=False)
        self.basis = _scaled(depthwise, math.prod(coarsest))
        self.linear = _scaled(nn.Linear(channels, features, bias=False), channels)

    def forward(self, features: Float[Tensor, "n k h w"]) -> Float[Tensor, "n f"]:
        return self.linear(self.basis(features).flatten(1))


class _Stage(nn.Sequential):
    """Sequence of layers that computes in the precision of autocast if `half` is set, otherwise in float32."""

    def __init__(self, *layers: nn.Module, half: bool) -> None:
        super().__init__(*layers)
        self.half_precision = half

    def forward(self, features: Tensor) -> Tensor:
        if self.half_precision:
            return super().forward(autocast_precision(features))
        with without_autocast(features):
            return super().forward(full_precision(features))


class R3GANGenerator(nn.Module):
    """Maps latents (N, Z) to unbounded images (N, C, H, W).

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the highest-resolution stage. With `None`, the lowest-resolution stage has 768
            channels.
        blocks: number of residual blocks per stage.
        group_width: number of channels per group of the 3x3 convolutions, counted before the expansion by 2.
        constant_until: resolution in pixels up to which all stages have the same width. It must be a power of two of
            at least 4. At higher resolutions, each stage has half the channels of the previous stage.
        num_classes: number of classes; 0 for an unconditional network. With classes, an embedding of size Z is
            concatenated with the latents.
    """

    def __init__(
        self,
        latent_dim: int,
        channels: int,
        image_size: Size,
        width: int | None = None,
        blocks: int = 2,
        group_width: int = 8,
        constant_until: int = 32,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "r3gan")
        widths = _widths(doublings, width, constant_until)
        self.embedding = _scaled(nn.Embedding(num_classes, latent_dim), num_classes) if num_classes else None
        starts: list[list[nn.Module]] = [[_FromLatents(latent_dim * (2 if num_classes else 1), widths[0], coarsest)]]
        starts += [_upsample(*pair) for pair in pairwise(widths)]
        self.stages = nn.ModuleList(
            _Stage(*start, *(_Block(wide, len(widths) * blocks, group_width) for _ in range(blocks)), half=half)
            for start, wide, half in zip(starts, widths, _halves(len(widths)), strict=True)
        )
        self.to_image = _scaled(nn.Conv2d(widths[-1], channels, 1, bias=False), widths[-1])

    def forward(
        self, latents: Float[Tensor, "n z"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        features = latents if self.embedding is None else torch.cat([latents, self.embedding(labels)], 1)
        for stage in self.stages:
            features = stage(features)
        return self.to_image(features)


class R3GANDiscriminator(nn.Module):
    """Maps images (N, C, H, W) to logits (N,). Its stages are the generator's stages in reverse order.

    Args:
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: see `R3GANGenerator`.
        blocks: see `R3GANGenerator`.
        group_width: see `R3GANGenerator`.
        constant_until: see `R3GANGenerator`.
        num_classes: number of classes; 0 for an unconditional network. With classes, the features are multiplied by the
            class embedding (Miyato and Koyama 2018).
    """

    def __init__(
        self,
        channels: int,
        image_size: Size,
        width: int | None = None,
        blocks: int = 2,
        group_width: int = 8,
        constant_until: int = 32,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "r3gan")
        widths = _widths(doublings, width, constant_until)[::-1]
        features = widths[-1] if num_classes else 1
        self.from_image = _scaled(nn.Conv2d(channels, widths[0], 1, bias=False), channels)
        ends: list[list[nn.Module]] = [
            *(_downsample(*pair) for pair in pairwise(widths)),
            [_ToFeatures(widths[-1], features, coarsest)],
        ]
        self.stages = nn.ModuleList(
            _Stage(*(_Block(wide, len(widths) * blocks, group_width) for _ in range(blocks)), *end, half=half)
            for end, wide, half in zip(ends, widths, _halves(len(widths))[::-1], strict=True)
        )
        self.embedding = None
        if num_classes:
            self.embedding = _scaled(nn.Embedding(num_classes, features), num_classes, features**-0.5)

    def forward(
        self, images: Float[Tensor, "n c h w"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        features = self.from_image(images)
        for stage in self.stages:
            features = stage(features)
        if self.embedding is not None:
            features = features * self.embedding(labels)
        return features.sum(1)  # `squeeze` would return a view, which FSDP does not track
