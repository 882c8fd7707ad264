"""Projected GAN: Sauer, Chitta, Mueller and Geiger 2021, "Projected GANs Converge Faster"."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import Noise, mix
from lit_gans.metrics.extractors.base import in_color
from lit_gans.metrics.extractors.efficientnet import EfficientNetLite, EfficientnetLite0
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName, refuse_options
from lit_gans.networks.fastgan import FastGANGenerator
from lit_gans.networks.projected import Maps, ProjectedDiscriminator
from lit_gans.training.batch import Batch
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.losses import Scored, critic_generator, hinge_discriminator
from lit_gans.training.optim import Optimizer


class FrozenFeatures:
    """Maps of EfficientNet-Lite0 with the weights of its package, which are read when they are first needed.

    The network sees (pixel - 127) / 128, as these weights were trained; the authors' code gives it [-1, 1]. It is no
    module: its weights are neither trained, nor averaged, nor part of checkpoints.
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
        network = EfficientNetLite().eval().requires_grad_(False) if images.is_meta else self.load()
        weight = next(network.parameters())
        if (weight.device, weight.dtype) != (images.device, images.dtype):
            network.to(images)
        return network.maps((in_color(images) * 127.5 + 0.5) / 128)[1:]


class ProjectedGAN(ImageGAN):
    """Four discriminators of random projections of a frozen classifier's features, and the generator of FastGAN.

    The defaults are those of the authors' code, without conditioning on classes. Networks and losses follow that code,
    but the losses of the four discriminators are added (equation 4) instead of averaged, which Adam hardly notices.
    Each step has latents of its own. The authors step the generator first: from the second step on, the order is the
    same. One optimizer steps the four discriminators. Their random projections are frozen parameters of
    `discriminator`: drawn from `seed`, equal on all ranks, and part of checkpoints. Checkpoints exclude the classifier,
    EfficientNet-Lite0 with the weights of its package; metrics that use it raise an error for this GAN.

    Args:
        feature_size: pixels to which the shorter side of smaller images is enlarged for the frozen network.
        lite: whether the generator has one convolution for each map instead of two with noise: the authors'
            `fastgan_lite`, of 79.4 instead of 105.7 million parameters at 256 pixels (fastgan).
        network: network of the generator, see `ImageGAN`.
        discriminator_width: channels of the finest projected map.
        latent_dim, generator_optimizer, discriminator_optimizer, diffaugment: see `AdversarialModule`.
        **kwargs: see `ImageGAN`.

    Raises:
        RefusedInput: a value is out of range, or would have no effect on the discriminators.
    """

    trains_against = ("efficientnet_lite0",)
    discriminator_width: int

    def __init__(
        self,
        feature_size: int = 224,
        lite: bool = False,
        network: NetworkName = "fastgan",
        discriminator_width: int = 64,
        latent_dim: int = 256,
        generator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.99)),
        discriminator_optimizer: Optimizer = Optimizer("Adam", lr=2e-4, betas=(0.0, 0.99)),
        diffaugment: tuple[Augmentation, ...] = ("color", "translation", "small_cutout"),
        **kwargs: Any,
    ) -> None:
        refuse_below(32, feature_size=feature_size)
        self.feature_size, self.lite, self._features = feature_size, lite, FrozenFeatures()
        super().__init__(
            network=network,
            discriminator_width=discriminator_width,
            latent_dim=latent_dim,
            generator_optimizer=generator_optimizer,
            discriminator_optimizer=discriminator_optimizer,
            diffaugment=diffaugment,
            **kwargs,
        )
        if self.num_classes:
            raise RefusedInput(f"num_classes={self.num_classes}: these discriminators see no classes; use 0.")
        if self.freeze_discriminator:
            raise RefusedInput("freeze_discriminator: what is near the images is frozen already; use 0.")

    def build_networks(self) -> None:
        noisy = {"noise": not self.lite} if self.network == "fastgan" else {}
        refuse_options(self.network, self.image_size, lite=self.lite)
        self.generator = self.build_generator(lite=self.lite, **noisy)
        self.discriminator = ProjectedDiscriminator(
            self._features,
            self._features.channels,
            self.image_size,
            self.feature_size,
            self.discriminator_width,
        )

    # ---- the noise of the generator's maps

    def sample_noise(self, noise: Noise, num: int) -> Batch:
        return {**super().sample_noise(noise, num), **self._map_noise(noise, num)}

    def sampling_batch(self, inputs: Tensor, labels: Tensor | None, seed: int) -> Batch:
        noise = Noise(torch.Generator(device=inputs.device), (mix(seed, "samples"),))
        return {**super().sampling_batch(inputs, labels, seed), **self._map_noise(noise, len(inputs))}

    def _map_noise(self, noise: Noise, num: int) -> Batch:
        return {f"noise_{index}": noise.normal(f"noise {index}", num, *s) for index, s in enumerate(self._noise_shapes)}

    def dummy_batch(self, num: int) -> Batch:
        noise = {f"noise_{index}": torch.empty(num, *shape) for index, shape in enumerate(self._noise_shapes)}
        return {**super().dummy_batch(num), **noise}

    @property
    def _noise_shapes(self) -> list[tuple[int, ...]]:
        return self.generator.noise_shapes if isinstance(self.generator, FastGANGenerator) else []

    def generate(self, generator: nn.Module, batch: Batch) -> Tensor:
        if not self._noise_shapes:
            return super().generate(generator, batch)
        drawn = [batch[f"noise_{index}"] for index in range(len(self._noise_shapes))]
        images: Tensor = generator(batch["latents"], [each.to(batch["latents"].dtype) for each in drawn])
        return images

    # ---- losses

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
