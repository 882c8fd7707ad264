"""Residual networks of SNGAN (Miyato et al. 2018, tables 4 and 5) and of WGAN-GP for 32x32 (Gulrajani et al. 2017).

Shapes: N is the batch size, Z the latent size, C the number of image channels, H and W are height and width.
"""

from __future__ import annotations

import math
from itertools import pairwise

from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.size import Size, sides
from lit_gans.networks.blocks import (
    Block,
    ConditionalBatchNorm2d,
    Norm,
    PooledConv2d,
    ScoreHead,
    UpsampledConv2d,
    coarsest_map,
    convolution,
    is_cheap,
    normalization,
)

# maps the minimum length of the shorter side to a discriminator's number of blocks and of downsampling blocks
_DISCRIMINATOR = {16: (4, 2), 32: (4, 2), 48: (5, 4), 64: (5, 5), 128: (6, 5), 256: (7, 6)}
_WIDEST = 16  # limits the channels of a feature map to 16 x width


def _widths(image_size: Size, width: int | None, width_of_small: int, num: int) -> list[int]:
    """Returns the number of channels of each feature map, from the highest to the lowest resolution.

    Below 48 pixels, all maps have the same number of channels, because a discriminator then downsamples only a few
    times. For larger images, each map has twice as many channels as the previous map, up to 16 times as many as the
    first map.
    """
    small = min(sides(image_size)) < 48
    finest = width or (width_of_small if small else 64)
    return [finest * (1 if small else min(2**scale, _WIDEST)) for scale in range(num)]


def _blocks(image_size: Size) -> tuple[int, int]:
    """Returns a discriminator's number of blocks, and the number of blocks that downsample.

    Downsampling requires even sides.
    """
    height, width = sides(image_size)
    num, halving = next(counts for side, counts in reversed(_DISCRIMINATOR.items()) if side <= min(height, width))
    both = height | width
    return num, min(halving, (both & -both).bit_length() - 1)


def _initialize(network: nn.Module) -> None:
    """Initializes weights as in Glorot and Bengio (2010).

    The gain is sqrt(2) inside the blocks (ReLU) and 1 elsewhere.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if is_cheap(layer) and "skip" not in name:  # PyTorch's fan-out counts the channels of all groups
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            else:
                nn.init.xavier_uniform_(layer.weight, 2**0.5 if "conv_" in name else 1.0)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class _UpBlock(nn.Module):
    """Residual block of two convolutions, each after a normalization and a ReLU.

    The feature map is upsampled by 2 before the first convolution.
    """

    def __init__(self, channels_in: int, channels_out: int, block: Block, num_classes: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (
            ConditionalBatchNorm2d(channels, num_classes) if num_classes else nn.BatchNorm2d(channels)
            for channels in (channels_in, channels_out)
        )
        self.fused = block == "plain"
        self.conv_1 = (
            UpsampledConv2d(channels_in, channels_out)
            if self.fused
            else convolution(block, channels_in, channels_out, 3, 1, 1, bias=True)
        )
        self.conv_2 = convolution(block, channels_out, channels_out, 3, 1, 1, bias=True)
        self.skip = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, features: Float[Tensor, "n a h w"], labels: tuple[Tensor, ...]) -> Float[Tensor, "n b h2 w2"]:
        branch = functional.relu(self.norm_1(features, *labels))
        branch = self.conv_1(branch if self.fused else functional.interpolate(branch, scale_factor=2.0))
        branch = self.conv_2(functional.relu(self.norm_2(branch, *labels)))
        # a 1x1 convolution commutes with the upsampling and is 4 times cheaper before it
        return branch + functional.interpolate(self.skip(features), scale_factor=2.0)


class _DownBlock(nn.Module):
    """Residual block of two convolutions, each after a ReLU, with optional 2x2 average pooling.

    The first block has no ReLU on its input.
    """

    def __init__(
        self, channels_in: int, channels_out: int, halves: bool, first: bool, norm: Norm, block: Block
    ) -> None:
        super().__init__()
        self.halves, self.first = halves, first
        inner = channels_out if first else channels_in
        self.norm_1 = nn.Identity() if first else normalization(norm, channels_in)
        self.norm_2 = normalization(norm, inner)
        self.conv_1 = convolution("plain" if first else block, channels_in, inner, 3, 1, 1, bias=True)
        self.pools = halves and block == "plain"  # whether the second convolution includes the pooling
        self.conv_2 = (
            PooledConv2d(inner, channels_out)
            if self.pools
            else convolution(block, inner, channels_out, 3, 1, 1, bias=True)
        )
        projects = channels_in != channels_out or halves
        self.skip = nn.Conv2d(channels_in, channels_out, 1) if projects else nn.Identity()

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        branch = features if self.first else functional.relu(self.norm_1(features))
        branch = self.conv_2(functional.relu(self.norm_2(self.conv_1(branch))))
        if self.halves:  # a 1x1 convolution commutes with the pooling and is 4 times cheaper after it
            branch = branch if self.pools else functional.avg_pool2d(branch, 2)
            features = functional.avg_pool2d(features, 2)
        return branch + self.skip(features)


class ResNetGenerator(nn.Module):
    """Maps latents (N, Z) to images (N, C, H, W) in [-1, 1].

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the highest-resolution feature map. None uses 256 below 48 pixels, and 64
            otherwise. Below 48 pixels, all maps have this number of channels. Otherwise, each lower resolution has
            twice as many channels, up to 16 x width.
        block: type of the convolutions inside the residual blocks.
        num_classes: number of classes of the conditional batch norms in the blocks; 0 for an unconditional network.
    """

    @converts_arguments
    def __init__(
        self,
        latent_dim: int,
        channels: int,
        image_size: Size,
        width: int | None = None,
        block: Block = "plain",
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.coarsest, doublings = coarsest_map(image_size, "resnet")
        widths = _widths(image_size, width, 256, doublings + 1)[::-1]
        self.stem = nn.Linear(latent_dim, widths[0] * math.prod(self.coarsest))
        self.blocks = nn.ModuleList(_UpBlock(wide, narrow, block, num_classes) for wide, narrow in pairwise(widths))
        self.norm = nn.BatchNorm2d(widths[-1])
        self.to_image = nn.Conv2d(widths[-1], channels, 3, 1, 1)
        _initialize(self)

    def forward(
        self, latents: Float[Tensor, "n z"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        features = self.stem(latents).unflatten(1, (-1, *self.coarsest))
        for block in self.blocks:
            features = block(features, (labels,) if self.num_classes else ())
        return self.to_image(functional.relu(self.norm(features))).tanh()


class ResNetDiscriminator(nn.Module):
    """Maps images (N, C, H, W) to logits (N,).

    Args:
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the highest-resolution feature map. None uses 128 below 48 pixels, and 64
            otherwise. Below 48 pixels, all maps have this number of channels. Otherwise, each lower resolution has
            twice as many channels, up to 16 x width.
        norm: type of normalization before every ReLU. The input of the first block is not normalized.
        block: type of the convolutions inside the residual blocks.
        num_classes: number of classes; 0 for an unconditional network. With classes, the logits include a projection of
            the features onto the class embedding.
        sum_features: whether the last feature map is summed over all positions, as in SNGAN. If False, the map is
            averaged, as in WGAN-GP.
    """

    @converts_arguments
    def __init__(
        self,
        channels: int,
        image_size: Size,
        width: int | None = None,
        norm: Norm = "none",
        block: Block = "plain",
        num_classes: int = 0,
        sum_features: bool = True,
    ) -> None:
        super().__init__()
        coarsest_map(image_size, "resnet")  # raises an error for sizes that the generator does not support
        num, halving = _blocks(image_size)
        widths = [channels, *_widths(image_size, width, 128, num)]
        self.blocks = nn.Sequential(
            *(
                _DownBlock(narrow, wide, index < halving, index == 0, norm, block)
                for index, (narrow, wide) in enumerate(pairwise(widths))
            )
        )
        self.head = ScoreHead(widths[-1], num_classes)
        self.sum_features = sum_features
        _initialize(self)

    def forward(
        self, images: Float[Tensor, "n c h w"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        features = functional.relu(self.blocks(images))
        return self.head(features.sum((2, 3)) if self.sum_features else features.mean((2, 3)), labels)
