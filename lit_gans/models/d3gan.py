"""Worst-case dual-discriminator GAN from "Distributed Training of Dual Discriminator GANs"."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from lit_gans.common.precision import full_precision
from lit_gans.models.image_gan import ImageGAN
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, non_saturating_generator


class D3GAN(ImageGAN):
    """GAN with two discriminators, whose generator learns only from the discriminator with the larger error.

    The discriminator is selected by swapped errors. Error 1 is the sum of D1's error on real images and D2's error on
    generated images. Error 2 is the sum of D2's error on real images and D1's error on generated images. Each
    discriminator still trains on its own loss. The two swapped errors have the same sum as the two losses. The errors
    are averaged over all ranks, and the selection does not synchronize with the device.

    The default networks are DCGAN's networks, as for other GANs of this package, so that losses can be compared. The
    authors' generator uses Mish instead of ReLU and begins with a 2x2 instead of a 4x4 feature map. The authors'
    discriminators end with a 2x2 feature map.

    Args:
        **kwargs: see `ImageGAN`.
    """

    discriminator_1: nn.Module
    discriminator_2: nn.Module
    discriminator_names = ("discriminator_1", "discriminator_2")
    reuses_fake = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._errors: deque[Tensor] = deque(maxlen=self.accumulate_gradients)  # one per microbatch of a step

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        on_real, on_fake, scores = {}, {}, {}
        for name in self.discriminator_names:
            scores[name] = [self.get_submodule(name)(images, *self.condition(batch)) for images in (real, fake)]
            on_real[name] = softplus(-full_precision(scores[name][0]))
            on_fake[name] = softplus(full_precision(scores[name][1]))
        swapped = zip(on_real.values(), reversed(on_fake.values()), strict=True)
        self._errors.append(torch.stack([(real.mean() + fake.mean()).detach() for real, fake in swapped]))
        return {
            name: Scored(on_real[name].mean() + on_fake[name].mean(), *scores[name])
            for name in self.discriminator_names
        }

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        error_1, error_2 = self.mean_over_ranks(torch.stack([*self._errors]).mean(0))
        loss_1, loss_2 = (
            non_saturating_generator(self.get_submodule(name)(fake, *self.condition(batch)))
            for name in self.discriminator_names
        )
        return torch.where(error_1 > error_2, loss_1, loss_2)
