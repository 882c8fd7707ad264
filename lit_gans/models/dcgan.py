"""DCGAN: Radford, Metz and Chintala 2016, "Unsupervised Representation Learning with Deep Convolutional GANs"."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lit_gans.errors import RefusedInput
from lit_gans.losses import logistic_discriminator, non_saturating_generator
from lit_gans.models.base import AdversarialModule, Batch
from lit_gans.networks.dcgan import DCGANDiscriminator, DCGANGenerator, num_scales


class DCGAN(AdversarialModule):
    """Convolutional networks with batch norm, the non-saturating loss, Adam at 2e-4 with beta_1 = 0.5.

    The defaults are those of section 4 and figure 1 of the paper, at 64x64.

    Args:
        generator_width: channels of the generator's last hidden map (1,024 on the 4x4 map at 64x64).
        discriminator_width: channels of the discriminator's first map.
        bias: biases also in the convolutions before a batch norm.
        dense_stem: a dense layer between the latent and the generator's first convolution.
        label_smoothing: real images have the target 1 - label_smoothing.
        **kwargs: see `AdversarialModule`.
    """

    reuses_fake = True  # one batch of fake images serves both updates

    def __init__(
        self,
        generator_width: int = 128,
        discriminator_width: int = 64,
        bias: bool = False,
        dense_stem: bool = False,
        label_smoothing: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        num_scales(self.image_size)  # refuses other sizes now, not when the networks are built
        if generator_width < 1 or discriminator_width < 1:
            raise RefusedInput(f"{generator_width=} and {discriminator_width=} must be at least 1.")
        if not 0 <= label_smoothing < 1:
            raise RefusedInput(f"label_smoothing={label_smoothing} must lie in [0, 1).")
        self.generator_width, self.discriminator_width = generator_width, discriminator_width
        self.bias, self.dense_stem, self.label_smoothing = bias, dense_stem, label_smoothing

    def configure_networks(self) -> dict[str, nn.Module]:
        shape = (self.channels, self.image_size)
        return {
            "generator": DCGANGenerator(self.latent_dim, *shape, self.generator_width, self.bias, self.dense_stem),
            "discriminator": DCGANDiscriminator(*shape, self.discriminator_width, self.bias),
        }

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Tensor]:
        real_logits, fake_logits = self.discriminator(real), self.discriminator(fake)
        return {"discriminator": logistic_discriminator(real_logits, fake_logits, self.label_smoothing)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return non_saturating_generator(self.discriminator(fake))
