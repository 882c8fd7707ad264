"""WGAN-GP: Gulrajani, Ahmed, Arjovsky, Dumoulin and Courville 2017, "Improved Training of Wasserstein GANs"."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import Noise
from lit_gans.common.size import sides
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName, refuse_options
from lit_gans.networks.blocks import Norm
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, critic_generator, wasserstein_critic
from lit_gans.training.optim import Optimizer
from lit_gans.training.penalties import gradient_penalty
from lit_gans.training.schedules import Linear, Number, refuse_weights

_LARGE, _NARROW = 48, 128  # pixels from which on maps have unequal widths; channels below, half of SNGAN's
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class WGANGP(ImageGAN):
    """The Wasserstein loss with a two-sided penalty on the critic's gradient between real and fake (algorithm 1).

    The defaults follow the residual networks at 32x32 (appendix F) and the authors' `gan_cifar_resnet.py`: n_critic 5,
    lambda 10, Adam at 2e-4 with betas 0 and 0.9, decaying to zero, generator and critic of equal width, a critic that
    averages its last map, twice as many generated images in the generator's step, dequantized real images. Larger
    images have SNGAN's residual networks. Every critic step uses new real images, latents and eps, with one eps for
    each image. With `num_classes`, generated images have the labels of the real images in the critic's steps and
    uniform random labels in the generator's step, as in that script; the critic has SNGAN's projection instead of its
    auxiliary classifier.

    Args:
        gradient_penalty: weight of the penalty, lambda; may be a schedule.
        dequantize: whether uniform noise of one of 256 levels is added to real images; points are left as they are.
        sum_features: whether the critic sums its last map over all positions, which makes scores and gradients larger,
            instead of averaging it (resnet).
        generator_width: see `ImageGAN`; null uses 128 below 48 pixels (resnet).
        critic_norm: `none`, `layer` or `instance`. Batch norm raises an error: it makes the critic's score of an image
            depend on the other images, but the gradient is penalized for each image independently (section 4).
        network, latent_dim, n_critic, generator_batch_multiple, generator_optimizer, discriminator_optimizer: see
            `ImageGAN` and `AdversarialModule`.
        **kwargs: see `ImageGAN`.
    """

    def __init__(
        self,
        gradient_penalty: Number = 10.0,
        dequantize: bool = True,
        sum_features: bool = False,
        critic_norm: Norm = "none",
        generator_width: int | None = None,
        network: NetworkName = "resnet",
        latent_dim: int = 128,
        n_critic: int = 5,
        generator_batch_multiple: int = 2,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.9), schedule=Linear()),
        discriminator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.9), schedule=Linear()),
        **kwargs: Any,
    ) -> None:
        refuse_weights(gradient_penalty=gradient_penalty)
        self.gradient_penalty, self.critic_norm = gradient_penalty, critic_norm
        self.dequantize, self.sum_features = dequantize, sum_features
        super().__init__(
            generator_width=generator_width,
            network=network,
            latent_dim=latent_dim,
            n_critic=n_critic,
            generator_batch_multiple=generator_batch_multiple,
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
        refuse_options(self.network, self.image_size, sum_features=self.sum_features)
        if self.generator_width is None and self.network == "resnet" and min(sides(self.image_size)) < _LARGE:
            self.generator_width = _NARROW
        self.generator = self.build_generator()
        self.discriminator = self.build_discriminator(norm=self.critic_norm, sum_features=self.sum_features)

    @property
    def penalized_networks(self) -> tuple[str, ...]:
        return self.discriminator_names

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        drawn = {**super().sample_noise(noise, num), "eps": noise.uniform("eps", num, 1, 1, 1)}
        if self._dequantizes:
            drawn["dequantization"] = noise.uniform("dequantization", num, *self.image_shape)
        return {**drawn, "generator_label": self.uniform_labels(noise, num)} if self.num_classes else drawn

    @property
    def _dequantizes(self) -> bool:
        return self.dequantize and self.image_size != 1

    def augment(self, batch: Batch) -> Batch:
        """Returns a batch whose real images have uniform noise within each of their 256 levels."""
        if not self._dequantizes:
            return batch
        image = batch["image"]
        levels = (image + 1) * 127.5 + batch["dequantization"].to(image.dtype)
        return {**batch, "image": levels / 128 - 1}

    def generator_batch(self, batch: Batch) -> Batch:
        """Returns a batch whose generated images have random classes."""
        return {**batch, "fake_label": batch["generator_label"]} if self.num_classes else batch

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        condition = self.condition(batch)
        # computed before the scores, so that FSDP reduces only after the gradients of the penalty exist
        penalty = gradient_penalty(self.discriminator, real, fake, batch["eps"], *condition)
        real, fake = self.discriminator(real, *condition), self.discriminator(fake, *condition)
        loss = wasserstein_critic(real, fake) + self.now(self.gradient_penalty) * penalty
        return {"discriminator": Scored(loss, real, fake, penalty)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return critic_generator(self.discriminator(fake, *self.fake_condition(batch)))

    def classified_as_real(self, name: str, scores: Tensor) -> None:
        """A critic's scores have no threshold."""
