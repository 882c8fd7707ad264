"""Encoder and decoder of latent diffusion (Rombach et al. 2022, appendix E.1; Esser et al. 2021, table 7).

Shapes: N batch, C image channels, H and W height and width, Z latent channels.
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

_GROUPS, _PER_GROUP = 32, 4  # groups of a normalization, of at least so many channels


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions behind group norm and SiLU, around which the input is added."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_normalized(channels_in),
            nn.Conv2d(channels_in, channels, 3, padding=1),
            *_normalized(channels),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        self.skip = nn.Identity() if channels_in == channels else nn.Conv2d(channels_in, channels, 1)

    def forward(self, features: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h w"]:
        return self.skip(features) + self.layers(features)


class Attention(nn.Module):
    """Attention of each position of a map to all others, with one head, around which the input is added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _group_norm(channels)
        self.project = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        projected = self.project(self.norm(features)).flatten(2).transpose(1, 2)[:, None]  # of one head
        attended = functional.scaled_dot_product_attention(*projected.chunk(3, 3))[:, 0]
        return features + self.out(attended.transpose(1, 2).unflatten(2, features.shape[2:]))


class Autoencoder(nn.Module):
    """Encodes images (N, C, H, W) in a latent map (N, Z, H / f, W / f), and decodes it.

    Args:
        channels: C.
        image_size: H and W, multiples of f.
        latent_channels: Z.
        bottleneck: maps the encoder's output to latents, a loss of each image and indices, see `bottlenecks`.
        encoded: number of channels of the encoder's output.
        width: channels of the finest map.
        multipliers: channels of the map of each resolution, relative to `width`; between two, the map is halved, so
            that f is 2 to the power of their number less 1.
        blocks: number of residual blocks for each resolution of the encoder; the decoder has one more.

    Raises:
        RefusedInput: a side is not a multiple of f.
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
    ) -> None:
        super().__init__()
        self.multiple = 2 ** (len(multipliers) - 1)
        if any(side % self.multiple for side in sides(image_size)):
            nearest = as_size([max(1, round(side / self.multiple)) * self.multiple for side in sides(image_size)])
            raise RefusedInput(
                f"image_size={size_value(image_size)}: with {len(multipliers)} multipliers the autoencoder halves"
                f" images {len(multipliers) - 1} times, so that height and width must be multiples of"
                f" {self.multiple} pixels; the nearest size is {size_value(nearest)}."
            )
        widths = [width * multiplier for multiplier in multipliers]
        finest, deepest = widths[0], widths[-1]
        encoder: list[nn.Module] = [nn.Conv2d(channels, finest, 3, padding=1), *_blocks(finest, finest, blocks)]
        decoder: list[nn.Module] = [nn.Conv2d(latent_channels, deepest, 3, padding=1), *_middle(deepest)]
        for shallow, deep in pairwise(widths):
            encoder += [nn.Conv2d(shallow, shallow, 3, 2, 1), *_blocks(shallow, deep, blocks)]
        for deep, shallow in pairwise([deepest, *widths[::-1]]):
            decoder += _blocks(deep, shallow, blocks + 1)
            decoder += [UpsampledConv2d(shallow, shallow)]
        decoder.pop()  # the finest map is not doubled
        self.encoder = nn.Sequential(
            *encoder, *_middle(deepest), *_normalized(deepest), nn.Conv2d(deepest, encoded, 3, padding=1)
        )
        self.bottleneck = bottleneck
        self.decoder = nn.Sequential(*decoder, *_normalized(finest))
        self.last = nn.Conv2d(finest, channels, 3, padding=1)

    def forward(
        self, images: Float[Tensor, "n c h w"], noise: Float[Tensor, "n z p q"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Reconstructs images.

        Args:
            images: images in [-1, 1].
            noise: standard normal numbers for a bottleneck that draws; None for its means.

        Returns:
            Reconstructions (N, C, H, W), the input of the last layer (N, F, H, W), the loss of the bottleneck for each
            image (N,), and the index of each latent vector (N, H / f, W / f), or None.
        """
        latents, loss, codes = self.bottleneck(self.encoder(images), noise)
        features = self.decoder(latents)
        return self.last(features), features, loss, codes

    def encode(self, images: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n z p q"], Tensor | None]:
        """Returns latents without noise, and the index of each latent vector, or None."""
        latents, _, codes = self.bottleneck(self.encoder(images))
        return latents, codes

    def decode(self, latents: Float[Tensor, "n z p q"]) -> Float[Tensor, "n c h w"]:
        """Returns the images of latents."""
        images: Tensor = self.last(self.decoder(latents))
        return images


def _blocks(channels_in: int, channels: int, num: int) -> list[nn.Module]:
    return [ResidualBlock(channels if index else channels_in, channels) for index in range(num)]


def _middle(channels: int) -> list[nn.Module]:
    return [ResidualBlock(channels, channels), Attention(channels), ResidualBlock(channels, channels)]


def _normalized(channels: int) -> list[nn.Module]:
    return [_group_norm(channels), nn.SiLU()]


def _group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(_GROUPS, max(1, channels // _PER_GROUP)), channels)
