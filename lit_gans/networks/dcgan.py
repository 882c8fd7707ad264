"""Convolutional networks of DCGAN (Radford et al. 2016).

The lowest-resolution feature map is 4x4. It is larger for rectangular images and for sizes that are not a power of two.

Shapes: N is the batch size, Z the latent size, C the number of image channels, H and W are height and width.
"""

from __future__ import annotations

import math
from itertools import pairwise

from jaxtyping import Float, Int64
from torch import Tensor, cat, nn

from lit_gans.common.annotations import converts_arguments
from lit_gans.common.size import Size
from lit_gans.networks.blocks import (
    Block,
    Norm,
    ScoreHead,
    class_embedding,
    coarsest_map,
    convolution,
    is_cheap,
    normalization,
)

_WIDEST = 8  # limits the channels of a layer to 8 x width, as in the paper for 64x64 images


def _widths(doublings: int, width: int) -> list[int]:
    """Returns the number of channels of each feature map, from the highest to the lowest resolution."""
    return [width * min(2**scale, _WIDEST) for scale in range(doublings)]


def initialize(network: nn.Module) -> None:
    """Initializes weights from N(0, 0.02) as in the paper (section 4), and batch norm scales from N(1, 0.02).

    Grouped and 1x1 convolutions are initialized as in He et al. (2015), because a standard deviation of 0.02 is too
    small for their small fan-in.
    """
    for layer in network.modules():
        if is_cheap(layer):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
        elif isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
    for name, parameter in network.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)


def _norm(channels: int, enabled: bool) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels)] if enabled else []


class DCGANGenerator(nn.Module):
    """Maps latents (N, Z) to images (N, C, H, W) in [-1, 1] by transposed 4x4 convolutions.

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the last hidden map. Each lower resolution has twice as many channels, up to 8 x
            width.
        bias: whether convolutions before a batch norm have biases, which the batch norm cancels.
        dense_stem: whether to add a linear layer Z -> Z before the first convolution.
        single_norm: whether to use a single batch norm at the second-highest resolution, instead of one for each
            hidden map.
        block: type of the convolutions between two feature maps.
        num_classes: number of classes; 0 for an unconditional network. With classes, an embedding of size Z is
            concatenated with the latents.
    """

    @converts_arguments
    def __init__(
        self,
        latent_dim: int,
        channels: int,
        image_size: Size,
        width: int = 128,
        bias: bool = False,
        dense_stem: bool = False,
        single_norm: bool = False,
        block: Block = "plain",
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "dcgan")
        widths = _widths(doublings, width)[::-1]
        self.embedding = class_embedding(num_classes, latent_dim) if num_classes else None
        stem_size = latent_dim * (2 if num_classes else 1)
        self.stem = nn.Linear(stem_size, stem_size) if dense_stem else nn.Identity()
        layers: list[nn.Module] = [nn.ConvTranspose2d(stem_size, widths[0], coarsest, bias=bias)]
        for wide, narrow in pairwise(widths):
            layers += [*_norm(wide, not single_norm or wide == widths[-2]), nn.ReLU(inplace=True)]
            layers += [convolution(block, wide, narrow, 4, 2, 1, bias, transposed=True)]
        layers += [*_norm(widths[-1], not single_norm), nn.ReLU(inplace=True)]
        layers += [nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        initialize(self)

    def forward(
        self, latents: Float[Tensor, "n z"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        if self.embedding is not None:
            latents = cat([latents, self.embedding(labels)], 1)
        return self.layers(self.stem(latents)[:, :, None, None])


class DCGANDiscriminator(nn.Module):
    """Maps images (N, C, H, W) to logits (N,) by 4x4 convolutions of stride 2 and one linear layer.

    Args:
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the first feature map. Each lower resolution has twice as many channels, up to 8 x
            width.
        bias: whether convolutions before a batch norm have biases, which the batch norm cancels.
        norm: type of normalization after every convolution except the first.
        top_width: number of channels of an additional convolution of stride 2 before the linear layer. 0 adds no
            convolution.
        block: type of all convolutions except the first.
        num_classes: number of classes; 0 for an unconditional network. With classes, the logits include a projection of
            the features onto the class embedding.
    """

    @converts_arguments
    def __init__(
        self,
        channels: int,
        image_size: Size,
        width: int = 64,
        bias: bool = False,
        norm: Norm = "batch",
        top_width: int = 0,
        block: Block = "plain",
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "dcgan")
        widths = [*_widths(doublings, width), *([top_width] if top_width else [])]
        layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
        for narrow, wide in pairwise(widths):
            layers += [convolution(block, narrow, wide, 4, 2, 1, bias or norm != "batch")]
            layers += [normalization(norm, wide), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers)
        num_positions = math.prod(side // (2 if top_width else 1) for side in coarsest)
        self.head = ScoreHead(widths[-1] * num_positions, num_classes)
        initialize(self)

    def forward(
        self, images: Float[Tensor, "n c h w"], labels: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        return self.head(self.layers(images).flatten(1), labels)
