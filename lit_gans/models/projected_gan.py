"""Projected GAN: Sauer, Chitta, Mueller and Geiger 2021, "Projected GANs Converge Faster"."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.noise import Noise, mix
from lit_gans.common.precision import full_precision
from lit_gans.metrics.extractors.base import in_color
from lit_gans.metrics.extractors.efficientnet import EfficientNetLite, EfficientnetLite0
from lit_gans.models.image_gan import ImageGAN
from lit_gans.networks import NetworkName, refuse_options
from lit_gans.networks.fastgan import FastGANGenerator
from lit_gans.networks.projected import Maps, ProjectedDiscriminator
from lit_gans.training.batch import Batch
from lit_gans.training.diffaugment import Augmentation
from lit_gans.training.losses import Scored, critic_generator, hinge_discriminator
from lit_gans.training.optim import OptimizerConfig


class FrozenFeatures:
    """Feature maps of EfficientNet-Lite0 with pretrained weights from its package, which are loaded on first use.

    The network's input is normalized to (pixel - 127) / 128, as in the training of these weights. The authors' code
    normalizes the input to [-1, 1] instead. This class is not a module, so that its weights are neither trained nor
    averaged, nor part of checkpoints. Its weights are in float32 at least, even for images in half precision.
    """

    channels = (24, 40, 112, 320)

    def __init__(self) -> None:
        self._network: EfficientNetLite | None = None

    def load(self) -> EfficientNetLite:
        """Returns the network. Raises `RefusedInput` if the package that contains the weights is not installed."""
        self._network = self._network or EfficientnetLite0().network
        return self._network

    def __call__(self, images: Float[Tensor, "n c h w"]) -> Maps:
        """Returns feature maps of images in [-1, 1] at 1/4, 1/8, 1/16 and 1/32 of their height and width."""
        network = EfficientNetLite().eval().requires_grad_(False) if images.is_meta else self.load()
        precise = full_precision(images)  # casting the weights to half precision would round them permanently
        weight = next(network.parameters())
        if (weight.device, weight.dtype) != (precise.device, precise.dtype):
            network.to(precise)
        maps = network.maps((in_color(precise) * 127.5 + 0.5) / 128)[1:]
        # without autocast, the projections of half-precision images have weights in half precision (FSDP)
        return maps if precise is images else [features.to(images.dtype) for features in maps]


class ProjectedGAN(ImageGAN):
    """GAN with FastGAN's generator and four discriminators on random projections of a frozen classifier's features.

    The defaults, networks and losses follow the authors' code, without class conditioning. But the losses of the four
    discriminators are summed (equation 4) instead of averaged, which makes almost no difference with Adam. Each step
    samples new latents. The authors step the generator first, so the order of the steps is the same from the second
    step on.

    One optimizer steps all four discriminators. The random projections are frozen parameters of `discriminator`. They
    depend on `seed` alone, are equal on all ranks, and are part of checkpoints. Checkpoints exclude the classifier,
    which is EfficientNet-Lite0 with pretrained weights from its package. Metrics that use the same classifier raise an
    error for this GAN.

    Args:
        feature_size: size in pixels to which the shorter side of smaller images is enlarged for the frozen network.
        lite: whether the generator has one convolution per feature map instead of two with noise. This is the authors'
            `fastgan_lite`, which has 79.4 instead of 105.7 million parameters for images of 256 pixels (fastgan).
        network: network of the generator, see `ImageGAN`.
        discriminator_width: number of channels of the highest-resolution projected map.
        latent_dim, generator_optimizer, discriminator_optimizer, diffaugment: see `AdversarialModule`.
        **kwargs: see `ImageGAN`.

    Raises:
        RefusedInput: if a value is out of range, or would have no effect on the discriminators.
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
        generator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=2e-4, betas=(0.0, 0.99)),
        discriminator_optimizer: OptimizerConfig = OptimizerConfig("Adam", lr=2e-4, betas=(0.0, 0.99)),
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
            raise RefusedInput(
                f"num_classes={self.num_classes}: the discriminators do not support class conditioning; use 0."
            )
        if self.channels not in (1, 3):
            raise RefusedInput(f"channels={self.channels}: the frozen classifier supports images with 1 or 3 channels.")
        if self.freeze_discriminator:
            raise RefusedInput("freeze_discriminator: the layers near the input are always frozen; use 0.")

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

    # ---- the noise of the generator's feature maps

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
        noise = [batch[f"noise_{index}"] for index in range(len(self._noise_shapes))]
        images: Tensor = generator(batch["latents"], [tensor.to(batch["latents"].dtype) for tensor in noise])
        return images

    # ---- losses

    def begin_training(self) -> None:
        self._features.load()  # raises an error early if the package is not installed

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        on_real, on_fake = self.discriminator(real), self.discriminator(fake)
        losses = [hinge_discriminator(*pair) for pair in zip(on_real, on_fake, strict=True)]
        return {"discriminator": Scored(torch.stack(losses).sum(), on_real, on_fake)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        return torch.stack([critic_generator(scores) for scores in self.discriminator(fake)]).sum()
