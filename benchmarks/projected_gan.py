"""Projected GAN (Sauer, Chitta, Mueller and Geiger 2021, "Projected GANs Converge Faster") with the generator of
FastGAN (Liu, Zhu, Song and Elgammal 2021), for trials; benchmarks/recorded/projected_gan.md has the figures.

`LIT_GANS_IMPORT=benchmarks.projected_gan lit-gans train model=projected_gan` trains it in a clone.

Shapes: N batch, Z latent size, C image channels, K and L channels of maps, P and Q positions that are scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.size import Size, sides
from lit_gans.metrics.extractors.base import in_color
from lit_gans.metrics.extractors.efficientnet import EfficientNetLite, EfficientnetLite0
from lit_gans.networks.blocks import UpsampledConv2d, coarsest_map
from lit_gans.networks.dcgan import initialize
from lit_gans.networks.spectral import spectrally_normalized
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.batch import Batch
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.losses import critic_generator, hinge_discriminator
from lit_gans.training.optim import Optimizer
from lit_gans.training.scored import Scored

Maps = list[Float[Tensor, "n _ _ _"]]

# ---- the generator


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


# ---- the discriminators


class FrozenFeatures:
    """Maps of EfficientNet-Lite0 with the weights of its package, which are read when they are first needed.

    It is no module: its weights are neither trained, nor averaged, nor part of checkpoints.
    """

    channels = (24, 40, 112, 320)

    def __init__(self) -> None:
        self._network: EfficientNetLite | None = None

    def load(self) -> EfficientNetLite:
        """Returns the network; raises `RefusedInput` if the package is missing."""
        self._network = self._network or EfficientnetLite0().network
        return self._network

    def __call__(self, images: Float[Tensor, "n c h w"]) -> Maps:
        """Returns maps of images in [-1, 1], of a quarter, an eighth, a 16th and a 32nd of their height and width."""
        network = EfficientNetLite() if images.is_meta else self.load()
        weight = next(network.parameters())
        if (weight.device, weight.dtype) != (images.device, images.dtype):
            network.to(images)
        return network.maps((in_color(images) * 127.5 + 0.5) / 128)[1:]


class Projections(nn.Module):
    """Mixes the channels of feature maps by random 1x1 convolutions, then their scales by upsampling and random 3x3
    convolutions, from the coarsest map to the finest (Sauer et al., section 3.2). None of it is ever trained.

    Args:
        channels: channels of the feature maps, the finest first.
        width: channels of the finest projected map.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        wide = [width << scale for scale in range(len(channels))]
        self.of_channels = nn.ModuleList(nn.Conv2d(*pair, 1, bias=False) for pair in zip(channels, wide, strict=True))
        self.of_scales = nn.ModuleList(
            nn.Conv2d(coarse, fine, 3, padding=1, bias=False) for fine, coarse in pairwise([width, *wide])
        )
        for layer in (*self.of_channels, *self.of_scales):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
        self.requires_grad_(False)

    def forward(self, maps: Maps) -> Maps:
        """Returns the projected maps, the finest first, each as high and wide as twice the feature map."""
        sizes = [[2 * side for side in maps[0].shape[2:]], *([*each.shape[2:]] for each in maps[:-1])]
        found: Maps = []
        for features, channels, scales, size in [*zip(maps, self.of_channels, self.of_scales, sizes, strict=True)][
            ::-1
        ]:
            mixed = channels(features) + found[-1] if found else channels(features)
            found.append(scales(functional.interpolate(mixed, size, mode="bilinear")))
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
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, 1, (min(height, 4), min(width, 4))))

    def forward(self, features: Float[Tensor, "n k h w"]) -> Float[Tensor, "n p q"]:
        return self.layers(features).sum(1)  # not a view, which FSDP would not track


class ProjectedDiscriminator(nn.Module):
    """Maps images (N, C, H, W) in [-1, 1] to the logits (N, P, Q) of four discriminators, the finest map first.

    Args:
        features: maps of images, which are no part of this module.
        image_size: H and W.
        feature_size: pixels to which the shorter side of smaller images is enlarged.
        width: channels of the finest projected map.
    """

    def __init__(self, features: FrozenFeatures, image_size: Size, feature_size: int, width: int) -> None:
        super().__init__()
        self.features = features
        factor = max(1.0, feature_size / min(sides(image_size)))
        self.size = [round(side * factor) for side in sides(image_size)]
        self.projections = Projections(features.channels, width)
        quarter = [math.ceil(side / 4) for side in self.size]
        shapes = [[2 * side for side in quarter], quarter]
        shapes += [[math.ceil(side / scale) for side in self.size] for scale in (8, 16)]
        widths = [width << scale for scale in range(4)]
        self.heads = nn.ModuleList(
            spectrally_normalized(Head(widths[max(0, scale - 1)], *shape, widths[scale:]))
            for scale, shape in enumerate(shapes)
        )

    def forward(self, images: Float[Tensor, "n c h w"]) -> list[Float[Tensor, "n _ _"]]:
        if [*images.shape[2:]] != self.size:
            images = functional.interpolate(images, self.size, mode="bilinear")
        return [head(each) for head, each in zip(self.heads, self.projections(self.features(images)), strict=True)]


# ---- the GAN


class ProjectedGAN(AdversarialModule):
    """Four discriminators that see random projections of the features of a frozen network, and hinge losses.

    The defaults are the paper's. One optimizer steps the four discriminators. The random projections are frozen
    parameters of `discriminator`: they are drawn from `seed`, equal on all ranks, and part of checkpoints.

    Args:
        feature_size: pixels to which the shorter side of smaller images is enlarged for the frozen network.
        generator_width: channels of the generator's finest map; null for so many that the coarsest has 1024.
        discriminator_width: channels of the finest projected map.
        latent_dim, generator_optimizer, discriminator_optimizer, diffaugment: see `AdversarialModule`.
        **kwargs: see `AdversarialModule`.

    Raises:
        RefusedInput: a value is out of range.
    """

    reuses_fake = True  # both networks' steps share one batch of generated images
    trains_against = ("efficientnet_lite0",)

    def __init__(
        self,
        feature_size: int = 224,
        generator_width: int | None = None,
        discriminator_width: int = 64,
        latent_dim: int = 256,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.99)),
        discriminator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.99)),
        diffaugment: tuple[Augmentation, ...] = ("color", "translation", "cutout"),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            latent_dim=latent_dim,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            diffaugment=diffaugment,
            **kwargs,
        )
        refuse_below(32, feature_size=feature_size)
        refuse_below(1, discriminator_width=discriminator_width)
        if self.channels not in (1, 3):
            raise RefusedInput(f"channels={self.channels}: the frozen network sees images with 1 or 3 channels.")
        if self.freeze_discriminator:
            raise RefusedInput("freeze_discriminator: what is near the images is frozen already; use 0.")
        self._features = FrozenFeatures()
        with self.building():
            self.generator = FastGANGenerator(latent_dim, self.channels, self.image_size, generator_width)
            self.discriminator = ProjectedDiscriminator(
                self._features, self.image_size, feature_size, discriminator_width
            )

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self._features.load()  # raises where the package is missing

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        on_real, on_fake = self.discriminator(real), self.discriminator(fake)
        losses = [hinge_discriminator(*pair) for pair in zip(on_real, on_fake, strict=True)]
        return {"discriminator": Scored(torch.stack(losses).sum(), on_real, on_fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return torch.stack([critic_generator(scores) for scores in self.discriminator(fake)]).sum()
