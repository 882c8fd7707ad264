"""Encoder and decoder of latent diffusion (Rombach et al. 2022, appendix E.1; Esser et al. 2021, table 7).

`bottlenecks.py` contains the layers between them.

Shapes: N is the batch size, C and Z are the numbers of image and latent channels, H and W are height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size, sides, size_value
from lit_gans.networks.blocks import UpsampledConv2d
from lit_gans.networks.bottlenecks import Bottleneck

_GROUPS, _PER_GROUP = 32, 4  # maximum number of groups of group norm, and minimum number of channels per group
_EPS = 1e-6  # epsilon of group norm, as in the authors' code


class ResidualBlock(nn.Module):
    """Residual block of two 3x3 convolutions, each after group norm and SiLU."""

    def __init__(self, channels_in: int, channels: int, groups: int | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_normalized(channels_in, groups),
            nn.Conv2d(channels_in, channels, 3, padding=1),
            *_normalized(channels, groups),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        self.skip = nn.Identity() if channels_in == channels else nn.Conv2d(channels_in, channels, 1)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h w"]:
        return self.skip(features) + self.layers(features)


class Attention(nn.Module):
    """Residual self-attention with a single head over all positions of a feature map."""

    def __init__(self, channels: int, groups: int | None = None) -> None:
        super().__init__()
        self.norm = _group_norm(channels, groups)
        self.project = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        projected = self.project(self.norm(features)).flatten(2).transpose(1, 2)[:, None]  # one head
        attended = functional.scaled_dot_product_attention(*projected.chunk(3, 3))[:, 0]
        return features + self.out(attended.transpose(1, 2).unflatten(2, features.shape[2:]))


class AsymmetricConv2d(nn.Conv2d):
    """3x3 convolution with stride 2, whose input is padded by zeros on the right and at the bottom only."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__(channels_in, channels, 3, 2)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        return super().forward(functional.pad(features, (0, 1, 0, 1)))


class Autoencoder(nn.Module):
    """Encodes images (N, C, H, W) to a latent map (N, Z, H / f, W / f), and decodes the latent map to images.

    Args:
        channels: C.
        image_size: H and W, which must be multiples of f.
        latent_channels: Z.
        bottleneck: layer of `bottlenecks.py` that maps the encoder's output to a `Bottleneck`.
        encoded: number of channels of the encoder's output.
        width: number of channels of the highest-resolution feature map.
        multipliers: number of channels at each resolution relative to `width`, from the highest resolution to the
            lowest. Each resolution is half of the previous resolution, so f = 2 ** (len(multipliers) - 1).
        blocks: number of residual blocks per resolution in the encoder. The decoder has one more block per resolution.
        groups: number of groups of every group norm. None uses 32 groups, or fewer groups in narrow layers, so that
            every group has at least 4 channels.
        attention: whether there is self-attention at the lowest resolution.
        asymmetric_padding: whether downsampling pads on the right and at the bottom only, instead of on all sides.
        quant_conv: whether a 1x1 convolution follows the encoder.
        post_quant_conv: whether a 1x1 convolution precedes the decoder.

    Raises:
        RefusedInput: if H or W is not a multiple of f, or if `groups` does not divide all numbers of channels.
    """

    def __init__(
        self,
        channels: int,
        image_size: Size,
        latent_channels: int,
        bottleneck: nn.Module,
        encoded: int,
        width: int = 32,
        multipliers: Sequence[int] = (1, 2, 4, 4),
        blocks: int = 2,
        groups: int | None = None,
        attention: bool = True,
        asymmetric_padding: bool = False,
        quant_conv: bool = False,
        post_quant_conv: bool = False,
    ) -> None:
        super().__init__()
        self.multiple = 2 ** (len(multipliers) - 1)
        if any(side % self.multiple for side in sides(image_size)):
            nearest = as_size([max(1, round(side / self.multiple)) * self.multiple for side in sides(image_size)])
            raise RefusedInput(
                f"image_size={size_value(image_size)}: with {len(multipliers)} multipliers, the autoencoder halves"
                f" images {len(multipliers) - 1} times, so height and width must be multiples of"
                f" {self.multiple} pixels; the nearest size is {size_value(nearest)}."
            )
        widths = [width * multiplier for multiplier in multipliers]
        if groups is not None and any(channels % groups for channels in widths):
            raise RefusedInput(
                f"groups={groups} must divide the number of channels at each resolution, {widths}, for example"
                f" groups={gcd(_GROUPS, *widths)}."
            )
        finest, deepest = widths[0], widths[-1]
        encoder: list[nn.Module] = [nn.Conv2d(channels, finest, 3, padding=1)]
        encoder += _blocks(finest, finest, blocks, groups)
        decoder: list[nn.Module] = [nn.Conv2d(latent_channels, latent_channels, 1)] if post_quant_conv else []
        decoder += [nn.Conv2d(latent_channels, deepest, 3, padding=1), *_middle(deepest, groups, attention)]
        for shallow, deep in pairwise(widths):
            halved = AsymmetricConv2d(shallow, shallow) if asymmetric_padding else nn.Conv2d(shallow, shallow, 3, 2, 1)
            encoder += [halved, *_blocks(shallow, deep, blocks, groups)]
        for deep, shallow in pairwise([deepest, *widths[::-1]]):
            decoder += _blocks(deep, shallow, blocks + 1, groups)
            decoder += [UpsampledConv2d(shallow, shallow)]
        decoder.pop()  # the highest-resolution feature map is not upsampled
        encoder += [*_middle(deepest, groups, attention), *_normalized(deepest, groups)]
        encoder += [nn.Conv2d(deepest, encoded, 3, padding=1)]
        encoder += [nn.Conv2d(encoded, encoded, 1)] if quant_conv else []
        self.encoder = nn.Sequential(*encoder)
        self.bottleneck = bottleneck
        self.decoder = nn.Sequential(*decoder, *_normalized(finest, groups))
        self.last = nn.Conv2d(finest, channels, 3, padding=1)

    def forward(
        self, images: Float[Tensor, "n c h w"], noise: Float[Tensor, "n z p q"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Reconstructs images.

        Args:
            images: images in [-1, 1].
            noise: standard normal numbers, for a bottleneck that samples latents. None uses the means of the latents.

        Returns:
            Reconstructions (N, C, H, W), the input of the last layer (N, F, H, W), and the loss, the codes and the
            assignment of the `Bottleneck`.
        """
        latents, *others = self.bottleneck(self.encoder(images), noise)
        features = self.decoder(latents)
        return self.last(features), features, *others

    def encode(self, images: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n z p q"], Tensor | None]:
        """Returns latents without noise, and the index of each latent vector, or None for `DiagonalGaussian`."""
        found: Bottleneck = self.bottleneck(self.encoder(images))
        return found.latents, found.codes

    def decode(self, latents: Float[Tensor, "n z p q"]) -> Float[Tensor, "n c h w"]:
        """Decodes latents to images."""
        images: Tensor = self.last(self.decoder(latents))
        return images


def _blocks(channels_in: int, channels: int, num: int, groups: int | None) -> list[nn.Module]:
    return [ResidualBlock(channels if index else channels_in, channels, groups) for index in range(num)]


def _middle(channels: int, groups: int | None, attention: bool) -> list[nn.Module]:
    first = ResidualBlock(channels, channels, groups)
    between = [Attention(channels, groups)] if attention else []
    return [first, *between, ResidualBlock(channels, channels, groups)]


def _normalized(channels: int, groups: int | None) -> list[nn.Module]:
    return [_group_norm(channels, groups), nn.SiLU()]


def _group_norm(channels: int, groups: int | None) -> nn.GroupNorm:
    return nn.GroupNorm(groups or gcd(_GROUPS, max(1, channels // _PER_GROUP)), channels, eps=_EPS)
