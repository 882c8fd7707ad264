"""DCGAN's convolutional networks (Radford et al. 2016) for any power-of-two image size.

Shapes: N batch, Z latent size, C image channels, S image size.
"""

from __future__ import annotations

import math
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.errors import RefusedInput

_SMALLEST_MAP = 4  # both networks go between the image and a 4x4 map
_WIDEST = 8  # no layer is wider than 8 x width: the paper's widest at 64x64


def num_scales(image_size: int) -> int:
    """Returns how often a 4x4 map doubles to reach `image_size`.

    Raises:
        RefusedInput: `image_size` is no power of two from 16 to 256.
    """
    if image_size not in (16, 32, 64, 128, 256):
        raise RefusedInput(f"image_size={image_size} must be a power of two from 16 to 256: 16, 32, 64, 128 or 256.")
    return int(math.log2(image_size // _SMALLEST_MAP))


def _widths(image_size: int, width: int) -> list[int]:
    """Returns the channels of each feature map, from the finest to the 4x4 one."""
    return [width * min(2**scale, _WIDEST) for scale in range(num_scales(image_size))]


def initialise(network: nn.Module) -> None:
    """Draws weights from N(0, 0.02) as the paper does (section 4); batch-norm scales from N(1, 0.02)."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)


class DCGANGenerator(nn.Module):
    """Latents (N, Z) to images (N, C, S, S) in [-1, 1] by transposed 4x4 convolutions.

    Args:
        latent_dim: Z.
        channels: C.
        image_size: S, a power of two from 16 to 256.
        width: channels of the last hidden map; each coarser map has twice as many, up to 8 x width.
        bias: biases also in the convolutions before a batch norm, which cancels them.
        dense_stem: a dense layer Z -> Z before the first convolution.
    """

    def __init__(
        self, latent_dim: int, channels: int, image_size: int, width: int, bias: bool = False, dense_stem: bool = False
    ) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        widths = _widths(image_size, width)[::-1]
        self.stem = nn.Linear(latent_dim, latent_dim) if dense_stem else nn.Identity()
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent_dim, widths[0], 4, 4, bias=bias)]
        for narrow_in, narrow_out in pairwise(widths):
            layers += [nn.BatchNorm2d(narrow_in), nn.ReLU(inplace=True)]
            layers += [nn.ConvTranspose2d(narrow_in, narrow_out, 4, 2, 1, bias=bias)]
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(inplace=True)]
        layers += [nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        initialise(self)

    def forward(self, latents: Float[Tensor, "n z"]) -> Float[Tensor, "n c s s"]:
        return self.layers(self.stem(latents)[:, :, None, None])


class DCGANDiscriminator(nn.Module):
    """Images (N, C, S, S) to logits (N,) by 4x4 convolutions of stride 2 and one dense layer.

    Args:
        channels: C.
        image_size: S, a power of two from 16 to 256.
        width: channels of the first map; each coarser map has twice as many, up to 8 x width.
        bias: biases also in the convolutions before a batch norm, which cancels them.
    """

    def __init__(self, channels: int, image_size: int, width: int, bias: bool = False) -> None:
        super().__init__()
        widths = _widths(image_size, width)
        layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
        for narrow_in, narrow_out in pairwise(widths):
            layers += [nn.Conv2d(narrow_in, narrow_out, 4, 2, 1, bias=bias), nn.BatchNorm2d(narrow_out)]
            layers += [nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1] * _SMALLEST_MAP**2, 1)
        initialise(self)

    def forward(self, images: Float[Tensor, "n c s s"]) -> Float[Tensor, " n"]:
        return self.head(self.layers(images).flatten(1)).squeeze(1)
