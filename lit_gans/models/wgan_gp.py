"""WGAN-GP: Gulrajani, Ahmed, Arjovsky, Dumoulin and Courville 2017, "Improved Training of Wasserstein GANs"."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName
from lit_gans.networks.blocks import Norm
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, critic_generator, wasserstein_critic
from lit_gans.training.optim import Optimizer
from lit_gans.training.penalties import gradient_penalty
from lit_gans.training.schedules import Linear, Number, refuse_weights

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class WGANGP(ImageGAN):
    """The Wasserstein loss with a two-sided penalty on the critic's gradient between real and fake (algorithm 1).

    The defaults follow the residual networks at 32x32 (appendix F): n_critic 5, lambda 10, Adam at 2e-4 with betas 0
    and 0.9, decaying to zero. Every critic step uses new real images, latents and eps, with one eps for each image.

    Args:
        gradient_penalty: weight of the penalty, lambda; may be a schedule.
        critic_norm: `none`, `layer` or `instance`. Batch norm raises an error: it makes the critic's score of an image
            depend on the other images, but the gradient is penalized for each image independently (section 4). R1
            allows batch norm, see `r1_penalty`.
        network, latent_dim, n_critic, generator_optimizer, discriminator_optimizer: see `ImageGAN` and
            `AdversarialModule`.
        **kwargs: see `ImageGAN`.
    """

    def __init__(
        self,
        gradient_penalty: Number = 10.0,
        critic_norm: Norm = "none",
        network: NetworkName = "resnet",
        latent_dim: int = 128,
        n_critic: int = 5,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.9), schedule=Linear()),
        discriminator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.9), schedule=Linear()),
        **kwargs: Any,
    ) -> None:
        refuse_weights(gradient_penalty=gradient_penalty)
        self.gradient_penalty, self.critic_norm = gradient_penalty, critic_norm
        super().__init__(
            network=network,
            latent_dim=latent_dim,
            n_critic=n_critic,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            **kwargs,
        )
        if any(isinstance(layer, _BATCH_NORMS) for layer in self.discriminator.modules()):
            raise RefusedInput(
                "the critic has a batch norm, which mixes the images of a batch, but the gradient is penalized for each"
                " image independently (Gulrajani et al. 2017, section 4): use critic_norm=none, layer or instance."
            )

    def build_networks(self) -> None:
        self.generator, self.discriminator = self.build_generator(), self.build_discriminator(norm=self.critic_norm)

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        return self.discriminator_names

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        return {**super().sample_noise(noise, num), "eps": noise.uniform("eps", num, 1, 1, 1)}

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        condition = self.condition(batch)
        # computed before the scores, so that FSDP reduces only after the gradients of the penalty exist
        penalty = gradient_penalty(self.discriminator, real, fake, batch["eps"], *condition)
        real, fake = self.discriminator(real, *condition), self.discriminator(fake, *condition)
        loss = wasserstein_critic(real, fake) + self.now(self.gradient_penalty) * penalty
        return {"discriminator": Scored(loss, real, fake, penalty)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return critic_generator(self.discriminator(fake, *self.condition(batch)))

    def classified_as_real(self, name: str, scores: Tensor) -> None:
        """A critic's scores have no threshold."""
