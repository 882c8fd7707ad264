"""SNGAN: Miyato, Kataoka, Koyama and Yoshida 2018, "Spectral Normalization for Generative Adversarial Networks"."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lit_gans.common.noise import Noise
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName, refuse_options
from lit_gans.networks.spectral import spectrally_normalized
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, critic_generator, hinge_discriminator
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule


class SNGAN(ImageGAN):
    """GAN with spectral norm on every layer of the discriminator and the hinge loss (equations 16 and 17).

    The defaults follow the residual networks (section 4.1 and appendix B). n_critic is 5, and a generator step uses
    twice as many images as a discriminator step. Adam has betas 0 and 0.9, and a learning rate of 2e-4 that decays to
    zero. With `num_classes`, generated images have uniform random labels during training, as in the authors' code
    (Miyato and Koyama 2018).

    Args:
        spectral_generator: whether to also apply spectral norm to the generator.
        single_norm: whether the generator has a single batch norm, at its second-highest resolution (dcgan).
        top_width: number of channels of an additional convolution before the discriminator's linear layer. 0 adds no
            convolution (dcgan).
        network, latent_dim, n_critic, generator_batch_multiple, generator_optimizer, discriminator_optimizer: see
            `ImageGAN` and `AdversarialModule`.
        **kwargs: see `ImageGAN`.
    """

    def __init__(
        self,
        spectral_generator: bool = False,
        single_norm: bool = False,
        top_width: int = 0,
        network: NetworkName = "resnet",
        latent_dim: int = 128,
        n_critic: int = 5,
        generator_batch_multiple: int = 2,
        generator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.0, 0.9), schedule=LinearSchedule()
        ),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.0, 0.9), schedule=LinearSchedule()
        ),
        **kwargs: Any,
    ) -> None:
        self.spectral_generator, self.single_norm, self.top_width = spectral_generator, single_norm, top_width
        super().__init__(
            network=network,
            latent_dim=latent_dim,
            n_critic=n_critic,
            generator_batch_multiple=generator_batch_multiple,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            **kwargs,
        )

    def build_networks(self) -> None:
        refuse_options(self.network, self.image_size, single_norm=self.single_norm, top_width=self.top_width)
        generator = self.build_generator(single_norm=self.single_norm)
        self.generator = spectrally_normalized(generator) if self.spectral_generator else generator
        self.discriminator = spectrally_normalized(self.build_discriminator(norm="none", top_width=self.top_width))

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        latents = super().sample_noise(noise, num)
        return {**latents, "fake_label": self.uniform_labels(noise, num)} if self.num_classes else latents

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        real = self.discriminator(real, *self.condition(batch))
        fake = self.discriminator(fake, *self.fake_condition(batch))
        return {"discriminator": Scored(hinge_discriminator(real, fake), real, fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return critic_generator(self.discriminator(fake, *self.fake_condition(batch)))
