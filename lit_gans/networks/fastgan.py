"""Generator of FastGAN (Liu, Zhu, Song and Elgammal 2021, "Towards Faster and Stabilized GAN Training for High-fidelity
Few-shot Image Synthesis", section 3.1), as modified by the authors of Projected GAN (Sauer et al. 2021).

Shapes: N is the batch size, Z the latent size, H and W are height and width. C is the number of image channels, K and L
are numbers of channels of feature maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.size import Size
from lit_gans.networks.blocks import UpsampledConv2d, coarsest_map
from lit_gans.networks.spectral import spectrally_normalized

_COARSEST = 2048  # number of channels of the lowest-resolution feature map
_EXCITED = 4  # the maps of 64, 128, 256 and 512 pixels are excited, each by the map at 1/16 of its resolution
_EPS = 1e-8


class SkipLayerExcitation(nn.Module):
    """Scales the channels of a feature map by weights in [0, 1] from a lower-resolution map (Liu et al., figure 3)."""

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        pooled = nn.AdaptiveAvgPool2d(4), nn.Conv2d(coarse, fine, 4, bias=False), nn.SiLU()
        self.weights = nn.Sequential(*pooled, nn.Conv2d(fine, fine, 1, bias=False), nn.Sigmoid())

    def forward(self, coarse: Float[Tensor, "n k p q"], fine: Float[Tensor, "n l h w"]) -> Float[Tensor, "n l h w"]:
        return fine * self.weights(coarse)


class GatedConvolution(nn.Module):
    """Convolution followed by batch norm and a gated linear unit.

    Args:
        convolution: convolution with 2 x `channels` output channels.
        channels: number of output channels of the gated linear unit.
        noisy: whether to add noise to the convolution's output, scaled by a learned scalar that is initialized to 0.
    """

    def __init__(self, convolution: nn.Module, channels: int, noisy: bool = False) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, nn.BatchNorm2d(2 * channels)
        self.noise_weight = nn.Parameter(torch.zeros(1)) if noisy else None

    def forward(
        self, features: Float[Tensor, "n a p q"], noise: Float[Tensor, "n 1 h w"] | None = None
    ) -> Float[Tensor, "n b h w"]:
        features = self.convolution(features)
        if self.noise_weight is not None and noise is not None:
            features = features + self.noise_weight * noise
        return nn.functional.glu(self.norm(features), 1)


class FastGANGenerator(nn.Module):
    """Maps latents (N, Z) to unbounded images (N, C, H, W) by gated convolutions with skip-layer excitation.

    The network follows Projected GAN's code. Latents are normalized to the length sqrt(Z), and each feature map has two
    convolutions. Every convolution has spectral norm, and there is no tanh. Each map excites the map that has 16 times
    its resolution. The authors' code supports images of at least 128 pixels. For images below 64 pixels, this class
    uses the lowest-resolution map to excite the highest-resolution map.

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: number of channels of the highest-resolution map. With `None`, the lowest-resolution map has 2048
            channels.
        lite: whether each feature map has one convolution instead of two, as in the authors' `fastgan_lite`.
        noise: whether to add noise after all convolutions, except at the lowest resolution.
    """

    def __init__(
        self,
        latent_dim: int,
        channels: int,
        image_size: Size,
        width: int | None = None,
        lite: bool = False,
        noise: bool = False,
    ) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "fastgan")
        halvings = [scale - (scale > 3) for scale in range(doublings + 1)]  # 32x32 and 64x64 have equal widths
        finest = width or max(1, _COARSEST >> halvings[-1])
        widths = [finest << (halvings[-1] - halved) for halved in halvings]
        first = nn.ConvTranspose2d(latent_dim, 2 * widths[0], coarsest, bias=False)
        self.maps = nn.ModuleList([nn.ModuleList([GatedConvolution(first, widths[0])])])
        for wide, narrow in pairwise(widths):
            convolutions: list[nn.Module] = [UpsampledConv2d(wide, 2 * narrow, bias=False)]
            if not lite:
                convolutions += [nn.Conv2d(narrow, 2 * narrow, 3, padding=1, bias=False)]
            self.maps.append(nn.ModuleList(GatedConvolution(layer, narrow, noise) for layer in convolutions))
        self.apart = min(4, doublings)
        fine = widths[self.apart : self.apart + _EXCITED]
        self.excitations = nn.ModuleList(map(SkipLayerExcitation, widths, fine))
        self.to_image = nn.Conv2d(widths[-1], channels, 3, padding=1)
        sizes = [[side << scale for side in coarsest] for scale in range(1, doublings + 1)]
        per_map = (1 if lite else 2) if noise else 0
        self.noise_shapes: list[tuple[int, ...]] = [(1, *size) for size in sizes for _ in range(per_map)]
        spectrally_normalized(self)

    def forward(self, latents: Float[Tensor, "n z"], noise: Sequence[Tensor] = ()) -> Float[Tensor, "n c h w"]:
        """Generates images.

        Args:
            latents: standard normal latents.
            noise: standard normal numbers, one tensor (N, *shape) for each shape in `noise_shapes`. An empty sequence
                disables the noise.
        """
        latents = latents * (latents.square().mean(1, keepdim=True) + _EPS).rsqrt()
        maps, noises = [latents[:, :, None, None]], iter(noise)
        for index, layers in enumerate(self.maps):
            features = maps[-1]
            for layer in layers.children():
                features = layer(features, next(noises, None) if index else None)
            if self.apart <= index < self.apart + _EXCITED:
                features = self.excitations[index - self.apart](maps[index - self.apart + 1], features)
            maps.append(features)
        return self.to_image(maps[-1])
