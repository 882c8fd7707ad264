"""Discriminators on pretrained features: Sauer, Chitta, Mueller and Geiger 2021, "Projected GANs Converge Faster",
section 3.2.

Shapes: N is the batch size, C is the number of image channels, K and L are numbers of channels of feature maps, H and W
are height and width, P and Q are height and width of a map of logits.
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
    """Random projections that mix first the channels and then the scales of feature maps (Sauer et al., section 3.2).

    Channels are mixed by random 1x1 convolutions. Scales are mixed from the lowest to the highest resolution, by
    upsampling and random 1x1 convolutions. All convolutions are frozen.

    In the paper, the second step has 3x3 convolutions. This class follows the authors' code, which produced the paper's
    results. The code has 1x1 convolutions, bilinear upsampling with aligned corners, and PyTorch's initialization.

    Args:
        channels: number of channels of each feature map, from the highest resolution to the lowest.
        width: number of channels of the highest-resolution projected map.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        wide = [width << scale for scale in range(len(channels))]
        self.of_channels = nn.ModuleList(nn.Conv2d(*pair, 1) for pair in zip(channels, wide, strict=True))
        self.of_scales = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairwise([width, *wide]))
        self.requires_grad_(False)

    def forward(self, maps: Maps) -> Maps:
        """Returns the projected maps, the highest resolution first, each upsampled by 2 relative to its feature map."""
        sizes = [[2 * side for side in maps[0].shape[2:]], *([*features.shape[2:]] for features in maps[:-1])]
        projected: Maps = []
        from_the_finest = list(zip(maps, self.of_channels, self.of_scales, sizes, strict=True))
        for features, channels, scales, size in reversed(from_the_finest):
            mixed = channels(features) + projected[-1] if projected else channels(features)
            projected.append(scales(functional.interpolate(mixed, size, mode="bilinear", align_corners=True)))
        return projected[::-1]


class Head(nn.Module):
    """Maps a projected map to a map of logits (N, P, Q).

    4x4 convolutions of stride 2 reduce the map until its shorter side has at most 8 pixels. A convolution of stride 1
    then returns the logits.

    Args:
        channels: number of channels of the projected map.
        height, width: size of the projected map.
        widths: number of output channels of each convolution of stride 2. Any further convolutions use the last number.
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
        return self.layers(features).sum(1)  # `squeeze` would return a view, which FSDP does not track


class ProjectedDiscriminator(nn.Module):
    """Maps images (N, C, H, W) in [-1, 1] to the logits (N, P, Q) of four discriminators, highest resolution first.

    Args:
        features: function that returns the feature maps of images, from the highest resolution to the lowest. It is not
            a submodule of this module.
        channels: number of channels of each feature map.
        image_size: H and W.
        feature_size: size in pixels to which the shorter side of smaller images is enlarged.
        width: number of channels of the highest-resolution projected map.
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
        projected = self.projections(self.features(images))
        return [head(features) for head, features in zip(self.heads, projected, strict=True)]
