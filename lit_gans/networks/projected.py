"""Discriminators of features: Sauer, Chitta, Mueller and Geiger 2021, "Projected GANs Converge Faster", section 3.2.

Shapes: N batch, C image channels, K and L channels of maps, H and W height and width, P and Q positions of scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.size import Size, sides
from lit_gans.networks.spectral import spectrally_normalized

Maps = list[Float[Tensor, "n _ _ _"]]


class Projections(nn.Module):
    """Mixes the channels of feature maps by random 1x1 convolutions, then their scales by upsampling and random 1x1
    convolutions, from the coarsest map to the finest (Sauer et al., section 3.2). None of it is ever trained.

    The paper has 3x3 convolutions in the second step. The authors' code, which made the paper's figures and is followed
    here, has 1x1 convolutions, bilinear upsampling with aligned corners, and PyTorch's initialization.

    Args:
        channels: channels of the feature maps, the finest first.
        width: channels of the finest projected map.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        wide = [width << scale for scale in range(len(channels))]
        self.of_channels = nn.ModuleList(nn.Conv2d(*pair, 1) for pair in zip(channels, wide, strict=True))
        self.of_scales = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairwise([width, *wide]))
        self.requires_grad_(False)

    def forward(self, maps: Maps) -> Maps:
        """Returns the projected maps, the finest first, each as high and wide as twice the feature map."""
        sizes = [[2 * side for side in maps[0].shape[2:]], *([*each.shape[2:]] for each in maps[:-1])]
        found: Maps = []
        from_the_finest = list(zip(maps, self.of_channels, self.of_scales, sizes, strict=True))
        for features, channels, scales, size in reversed(from_the_finest):
            mixed = channels(features) + found[-1] if found else channels(features)
            found.append(scales(functional.interpolate(mixed, size, mode="bilinear", align_corners=True)))
        return found[::-1]


class Head(nn.Module):
    """Maps a projected map to logits (N, P, Q) by 4x4 convolutions of stride 2 down to 8 pixels, and one of stride 1.

    Args:
        channels: channels of the projected map.
        height, width: its size.
        widths: channels after each convolution of stride 2; the last is that of all further ones.
    """

    def __init__(self, channels: int, height: int, width: int, widths: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        while min(height, width) > 8:
            wide, *rest = widths
            widths = rest or [wide]
            layers += [nn.Conv2d(channels, wide, 4, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.LeakyReLU(0.2, True)]
            channels, height, width = wide, height // 2, width // 2
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, 1, (min(height, 4), min(width, 4)), bias=False))

    def forward(self, features: Float[Tensor, "n k h w"]) -> Float[Tensor, "n p q"]:
        return self.layers(features).sum(1)  # not a view, which FSDP would not track


class ProjectedDiscriminator(nn.Module):
    """Maps images (N, C, H, W) in [-1, 1] to the logits (N, P, Q) of four discriminators, the finest map first.

    Args:
        features: maps of images, the finest first, which are no part of this module.
        channels: channels of these maps.
        image_size: H and W.
        feature_size: pixels to which the shorter side of smaller images is enlarged.
        width: channels of the finest projected map.
    """

    def __init__(
        self,
        features: Callable[[Tensor], Maps],
        channels: Sequence[int],
        image_size: Size,
        feature_size: int,
        width: int,
    ) -> None:
        super().__init__()
        self.features = features
        factor = max(1.0, feature_size / min(sides(image_size)))
        self.size = [round(side * factor) for side in sides(image_size)]
        self.projections = Projections(channels, width)
        quarter = [math.ceil(side / 4) for side in self.size]
        shapes = [[2 * side for side in quarter], quarter]
        shapes += [[math.ceil(side / scale) for side in self.size] for scale in (8, 16)]
        widths = [width << scale for scale in range(4)]
        self.heads = nn.ModuleList(
            spectrally_normalized(Head(widths[max(0, scale - 1)], rows, columns, widths[scale:]))
            for scale, (rows, columns) in enumerate(shapes)
        )

    def forward(self, images: Float[Tensor, "n c h w"]) -> list[Float[Tensor, "n _ _"]]:
        if [*images.shape[2:]] != self.size:
            images = functional.interpolate(images, self.size, mode="bilinear")
        return [head(each) for head, each in zip(self.heads, self.projections(self.features(images)), strict=True)]
