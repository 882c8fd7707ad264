"""The first GAN: Goodfellow et al. 2014, "Generative Adversarial Nets"."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, logistic_discriminator, non_saturating_generator, saturating_generator


class GAN(ImageGAN):
    """GAN with fully connected networks and the logistic loss, for images and for points in the plane.

    Args:
        saturating: whether the generator minimizes log(1 - D(G(z))) (equation 1) instead of -log D(G(z)) (section 3).
        **kwargs: see `ImageGAN`.
    """

    reuses_fake = True

    def __init__(self, network: NetworkName = "mlp", saturating: bool = False, **kwargs: Any) -> None:
        super().__init__(network=network, **kwargs)
        self.saturating = saturating

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real, fake = (self.discriminator(images, *self.condition(batch)) for images in (real, fake))
        return {"discriminator": Scored(logistic_discriminator(real, fake), real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        loss = saturating_generator if self.saturating else non_saturating_generator
        return loss(self.discriminator(fake, *self.condition(batch)))
