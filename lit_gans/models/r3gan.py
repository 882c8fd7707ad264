"""R3GAN: Huang, Gokaslan, Kuleshov and Tompkin 2024, "The GAN is dead; long live the GAN! A Modern GAN Baseline"."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, relativistic
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import CosineSchedule, Number

_BURN_IN = 20_000_000  # number of images over which settings change, for CIFAR-10 and FFHQ
_GAMMA = CosineSchedule(0.05, 0.005, over=_BURN_IN, unit="images")
_ADAM = OptimizerConfig(
    "Adam",
    lr=2e-4,
    betas=(0.0, CosineSchedule(0.9, 0.99, over=_BURN_IN, unit="images")),
    schedule=CosineSchedule(1.0, 0.25, over=_BURN_IN, unit="images"),
)


class R3GAN(ImageGAN):
    """GAN with the relativistic pairing loss, R1 and R2, and residual networks without normalization.

    The penalties R1 and R2 reuse the scores that the loss computes. The defaults are the CIFAR-10 settings of the
    authors' `train.py`: gamma, learning rate and beta 2 follow a cosine over the first 20 million images. The
    generator's step compares generated images with the real images of the last discriminator step. The authors' code
    loads new real images instead.

    Args:
        blocks: number of residual blocks per resolution (r3gan).
        group_width: number of channels per group in the 3x3 convolutions (r3gan).
        constant_until: resolution in pixels up to which all stages have the same width. It must be a power of two of
            at least 4 (r3gan).
        network, latent_dim, r1_gamma, r2_gamma, share_scores, generator_optimizer, discriminator_optimizer: see
            `ImageGAN` and `AdversarialModule`.
        **kwargs: see `ImageGAN`.
    """

    def __init__(
        self,
        blocks: int = 2,
        group_width: int = 8,
        constant_until: int = 32,
        network: NetworkName = "r3gan",
        latent_dim: int = 64,
        r1_gamma: Number = _GAMMA,
        r2_gamma: Number = _GAMMA,
        share_scores: bool = True,
        generator_optimizer: OptimizerConfig = _ADAM,
        discriminator_optimizer: OptimizerConfig = _ADAM,
        **kwargs: Any,
    ) -> None:
        refuse_below(1, blocks=blocks, group_width=group_width)
        if network != "r3gan" and (blocks, group_width, constant_until) != (2, 8, 32):
            raise RefusedInput(f"blocks, group_width and constant_until: the {network} networks have no such options.")
        self.blocks, self.group_width, self.constant_until = blocks, group_width, constant_until
        super().__init__(
            network=network,
            latent_dim=latent_dim,
            r1_gamma=r1_gamma,
            r2_gamma=r2_gamma,
            share_scores=share_scores,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            **kwargs,
        )
        if self.generator_batch_multiple > 1:
            raise RefusedInput(
                "generator_batch_multiple: the relativistic loss pairs each generated image with one real image; use 1."
            )

    def build_networks(self) -> None:
        options = {"blocks": self.blocks, "group_width": self.group_width, "constant_until": self.constant_until}
        options = options if self.network == "r3gan" else {}
        self.generator, self.discriminator = self.build_generator(**options), self.build_discriminator(**options)

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real, fake = (self.discriminator(images, *self.condition(batch)) for images in (real, fake))
        return {"discriminator": Scored(relativistic(real, fake), real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        fake, real = (self.discriminator(images, *self.condition(batch)) for images in (fake, batch["image"]))
        return relativistic(fake, real)

    def classified_as_real(self, name: str, scores: Tensor) -> None:
        """Returns None, because a relativistic discriminator only compares images and its scores have no threshold."""
