"""D2GAN: Nguyen, Le, Vu and Phung 2017, "Dual Discriminator Generative Adversarial Nets"."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.precision import full_precision
from lit_gans.models.image_gan import ImageGAN
from lit_gans.training.batch import Batch
from lit_gans.training.losses import Scored, log_softplus


class D2GAN(ImageGAN):
    """GAN with two discriminators, one that scores real images high and one that scores generated images high.

    The two discriminators are D1 and D2 in equation 1. Their outputs are positive, D = softplus(score). The optimal
    discriminators are D1 = alpha p_data / p_G and D2 = beta p_G / p_data (proposition 1). With these discriminators,
    the generator minimizes the Kullback-Leibler divergences in both directions.

    Args:
        alpha: weight of the logarithm of the first discriminator, in (0, 1]. The paper uses 1 in its 2D experiments.
        beta: weight of the logarithm of the second discriminator, in (0, 1]. The paper uses 1 in its 2D experiments.
        **kwargs: see `ImageGAN`.
    """

    discriminator_1: nn.Module
    discriminator_2: nn.Module
    discriminator_names = ("discriminator_1", "discriminator_2")
    reuses_fake = True

    def __init__(self, alpha: float = 0.1, beta: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not 0 < value <= 1:
                raise RefusedInput(f"{name}={value} must lie in (0, 1].")
        self.alpha, self.beta = alpha, beta

    def discriminator_losses(self, real: Tensor, fake: Tensor, batch: Batch) -> dict[str, Scored]:
        condition = self.condition(batch)
        real_1, fake_1 = self.discriminator_1(real, *condition), self.discriminator_1(fake, *condition)
        real_2, fake_2 = self.discriminator_2(real, *condition), self.discriminator_2(fake, *condition)
        loss_1 = _mean_softplus(fake_1) - self.alpha * log_softplus(real_1).mean()
        loss_2 = _mean_softplus(real_2) - self.beta * log_softplus(fake_2).mean()
        return {"discriminator_1": Scored(loss_1, real_1, fake_1), "discriminator_2": Scored(loss_2, real_2, fake_2)}

    def generator_loss(self, fake: Tensor, batch: Batch) -> Tensor:
        condition = self.condition(batch)
        log_2 = log_softplus(self.discriminator_2(fake, *condition)).mean()
        return self.beta * log_2 - _mean_softplus(self.discriminator_1(fake, *condition))

    def classified_as_real(self, name: str, scores: Tensor) -> Tensor:
        # the optimal values are alpha p_data / p_G and beta p_G / p_data, so the thresholds are at p_data = p_G
        values = functional.softplus(full_precision(scores))
        return values > self.alpha if name == "discriminator_1" else values < self.beta


def _mean_softplus(scores: Tensor) -> Tensor:
    return functional.softplus(full_precision(scores)).mean()
