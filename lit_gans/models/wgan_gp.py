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
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.penalties import gradient_penalty
from lit_gans.training.schedules import LinearSchedule, Number, refuse_weights

_LARGE, _NARROW = 48, 128  # below 48 pixels, all feature maps have 128 channels, half as many as SNGAN's
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class WGANGP(ImageGAN):
    """GAN with the Wasserstein loss and a two-sided penalty on the critic's gradient (algorithm 1).

    The gradient is penalized at random points between real and generated images. The defaults follow the residual
    networks for 32x32 images (appendix F) and the authors' `gan_cifar_resnet.py`:

    - n_critic is 5 and lambda is 10. Adam has betas 0 and 0.9, and a learning rate of 2e-4 that decays to zero.
    - Generator and critic have the same width, and the critic averages its last feature map.
    - A generator step uses twice as many images as a critic step. Real images are dequantized.

    For larger images, the defaults are SNGAN's residual networks. Each critic step uses new real images, latents and
    eps, with one eps for each image. With `num_classes`, generated images have the labels of the real images in critic
    steps. In generator steps, they have uniform random labels, as in the authors' script. But the critic has SNGAN's
    projection instead of an auxiliary classifier.

    Args:
        gradient_penalty: weight of the penalty, lambda. It can be a schedule.
        dequantize: whether to add uniform noise to real images, with an amplitude of one of the 256 pixel levels.
            Points are not changed.
        sum_features: whether the critic sums its last feature map over all positions instead of averaging it. This
            increases its scores and gradients (resnet).
        generator_width: see `ImageGAN`. null uses 128 for images below 48 pixels (resnet).
        critic_norm: `none`, `layer` or `instance`. Batch norm raises an error, because the gradient is penalized for
            each image independently (section 4). With batch norm, the score of an image depends on the other images.
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
        generator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.0, 0.9), schedule=LinearSchedule()
        ),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig(
            "Adam", lr=2e-4, betas=(0.0, 0.9), schedule=LinearSchedule()
        ),
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
                "the critic has batch norm, which mixes the images of a batch, but the gradient is penalized for each"
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
        tensors = {**super().sample_noise(noise, num), "eps": noise.uniform("eps", num, 1, 1, 1)}
        if self._dequantizes:
            tensors["dequantization"] = noise.uniform("dequantization", num, *self.image_shape)
        return {**tensors, "generator_label": self.uniform_labels(noise, num)} if self.num_classes else tensors

    @property
    def _dequantizes(self) -> bool:
        return self.dequantize and self.image_size != 1

    def augment(self, batch: Batch) -> Batch:
        """Dequantizes the real images of a batch: adds uniform noise within each of their 256 levels."""
        if not self._dequantizes:
            return batch
        image = batch["image"]
        levels = (image + 1) * 127.5 + batch["dequantization"].to(image.dtype)
        return {**batch, "image": levels / 128 - 1}

    def generator_batch(self, batch: Batch) -> Batch:
        """Returns a batch with uniform random labels for the generated images."""
        return {**batch, "fake_label": batch["generator_label"]} if self.num_classes else batch

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        condition = self.condition(batch)
        # the penalty precedes the scores, so that FSDP reduces gradients only after the gradients of the penalty exist
        penalty = gradient_penalty(self.discriminator, real, fake, batch["eps"], *condition)
        real, fake = self.discriminator(real, *condition), self.discriminator(fake, *condition)
        loss = wasserstein_critic(real, fake) + self.now(self.gradient_penalty) * penalty
        return {"discriminator": Scored(loss, real, fake, penalty)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return critic_generator(self.discriminator(fake, *self.fake_condition(batch)))

    def classified_as_real(self, name: str, scores: Tensor) -> None:
        """Returns None, because the scores of a critic have no threshold."""
