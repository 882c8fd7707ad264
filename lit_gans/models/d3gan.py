"""The worst-case dual-discriminator GAN of "Distributed Training of Dual Discriminator GANs"."""

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
    """Two discriminators; the generator learns only from the one with the larger error.

    The choice uses swapped errors: error 1 combines D1's error on real images with D2's error on generated images,
    error 2 the reverse. Each discriminator still trains on its own loss; both pairs of errors have the same sum. The
    errors are averaged over all ranks, and the choice needs no device synchronization.

    The default networks are DCGAN's, as those of the other GANs of this package, so that losses can be compared. The
    authors' generator has Mish instead of ReLU and begins with a 2x2 map instead of 4x4, and their discriminators end
    with one.

    Args:
        **kwargs: see `ImageGAN`.
    """

    discriminator_1: nn.Module
    discriminator_2: nn.Module
    discriminator_names = ("discriminator_1", "discriminator_2")
    reuses_fake = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._errors: deque[Tensor] = deque(maxlen=self.accumulate_gradients)  # of each microbatch of the last step

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        on_real, on_fake, scores = {}, {}, {}
        for name in self.discriminator_names:
            scores[name] = [self.get_submodule(name)(images, *self.condition(batch)) for images in (real, fake)]
            on_real[name] = softplus(-full_precision(scores[name][0]))
            on_fake[name] = softplus(full_precision(scores[name][1]))
        swapped = zip(on_real.values(), reversed(on_fake.values()), strict=True)
        self._errors.append(torch.stack([(mine.mean() + other.mean()).detach() for mine, other in swapped]))
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
