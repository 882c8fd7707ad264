"""FastGAN's generator: Liu, Zhu, Song and Elgammal 2021, "Towards Faster and Stabilized GAN Training for High-fidelity
Few-shot Image Synthesis", section 3.1.

Shapes: N batch, Z latent size, C image channels, K and L channels of maps, H and W height and width.
"""

from __future__ import annotations

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.size import Size
from lit_gans.networks.blocks import UpsampledConv2d, coarsest_map
from lit_gans.networks.dcgan import initialize


class SkipLayerExcitation(nn.Module):
    """Multiplies the channels of a fine map by numbers from 0 to 1 that a coarse map gives (Liu et al., figure 3)."""

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        pooled = nn.AdaptiveAvgPool2d(4), nn.Conv2d(coarse, fine, 4), nn.LeakyReLU(0.1, inplace=True)
        self.weights = nn.Sequential(*pooled, nn.Conv2d(fine, fine, 1), nn.Sigmoid())

    def forward(self, coarse: Float[Tensor, "n k p q"], fine: Float[Tensor, "n l h w"]) -> Float[Tensor, "n l h w"]:
        return fine * self.weights(coarse)


class FastGANGenerator(nn.Module):
    """Maps latents (N, Z) to images (N, C, H, W) in [-1, 1]: one convolution for each map, and skip-layer excitation.

    A map excites the map that is doubled four times more. In images below 64 pixels, the coarsest map excites the
    finest. Without the noise of the authors' code, and without its spectral norm, since batch norm follows.

    Args:
        latent_dim: Z.
        channels: C.
        image_size: H and W, see `coarsest_map`.
        width: channels of the finest map; null for so many that the coarsest has 1024.
    """

    def __init__(self, latent_dim: int, channels: int, image_size: Size, width: int | None = None) -> None:
        super().__init__()
        coarsest, doublings = coarsest_map(image_size, "fastgan")
        halvings = [scale - (scale > 3) for scale in range(doublings + 1)]  # 32x32 and 64x64 are equally wide
        finest = width or max(1, 1024 >> halvings[-1])
        widths = [finest << (halvings[-1] - each) for each in halvings]
        first = nn.ConvTranspose2d(latent_dim, 2 * widths[0], coarsest, bias=False)
        convolutions = [first, *(UpsampledConv2d(wide, 2 * narrow) for wide, narrow in pairwise(widths))]
        self.maps = nn.ModuleList(
            nn.Sequential(convolution, nn.BatchNorm2d(2 * width), nn.GLU(1))
            for convolution, width in zip(convolutions, widths, strict=True)
        )
        self.apart = min(4, doublings)
        self.excitations = nn.ModuleList(map(SkipLayerExcitation, widths, widths[self.apart :]))
        self.to_image = nn.Sequential(nn.Conv2d(widths[-1], channels, 3, padding=1), nn.Tanh())
        initialize(self)

    def forward(self, latents: Float[Tensor, "n z"]) -> Float[Tensor, "n c h w"]:
        maps = [latents[:, :, None, None]]
        for index, layers in enumerate(self.maps):
            made = layers(maps[-1])
            if index >= self.apart:
                made = self.excitations[index - self.apart](maps[index - self.apart + 1], made)
            maps.append(made)
        return self.to_image(maps[-1])
