"""DCGAN: Radford, Metz and Chintala 2016, "Unsupervised Representation Learning with Deep Convolutional GANs"."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.models.image_gan import ImageGAN
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, logistic_discriminator, non_saturating_generator
from lit_gans.training.schedules import Number, ends


class DCGAN(ImageGAN):
    """GAN with convolutional networks, batch norm and the non-saturating loss.

    The defaults follow section 4 and figure 1 of the paper, for images of 64x64 pixels. Adam has a learning rate of
    2e-4 and beta_1 = 0.5.

    Args:
        label_smoothing: amount in [0, 1) by which the target of real images is lowered to 1 - label_smoothing. It can
            be a schedule.
        **kwargs: see `ImageGAN`.
    """

    reuses_fake = True  # the steps of both networks share one batch of generated images

    def __init__(self, label_smoothing: Number = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not all(0 <= end < 1 for end in ends(label_smoothing)):
            raise RefusedInput(f"label_smoothing={label_smoothing} must lie in [0, 1).")
        self.label_smoothing = label_smoothing

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real, fake = (self.discriminator(images, *self.condition(batch)) for images in (real, fake))
        return {"discriminator": Scored(logistic_discriminator(real, fake, self.now(self.label_smoothing)), real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return non_saturating_generator(self.discriminator(fake, *self.condition(batch)))
