"""A GAN of linear layers, and its training written as a plain loop."""

import torch
from torch import nn
from torch.nn import functional

from lit_gans.common.noise import Noise
from lit_gans.training.losses import Scored
from lit_gans.training.module import AdversarialModule
from lit_gans.training.optim import OptimizerConfig

PLAIN = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=0.1))


class LinearGAN(AdversarialModule):
    """No batch norm, so that microbatches do not affect each other: the loop alone is under test."""

    bare = False  # whether its losses come without scores

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        pixels = self.channels * self.image_size**2
        shape = (self.channels, self.image_size, self.image_size)
        with self.building():
            self.generator = nn.Sequential(nn.Linear(self.latent_dim, pixels), nn.Tanh(), nn.Unflatten(1, shape))
            self.discriminator = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.Softplus(), nn.Linear(8, 1))

    def discriminator_losses(self, real, fake, batch):
        real, fake = self.discriminator(real), self.discriminator(fake)
        loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
        return {"discriminator": loss if self.bare else Scored(loss, real, fake)}

    def generator_loss(self, fake, batch):
        return functional.softplus(-self.discriminator(fake)).mean()


SMALL = {"image_size": 16, "channels": 1, "latent_dim": 6, **PLAIN}


def linear_gan(**settings):
    return LinearGAN(**{**SMALL, **settings})


def reference_steps(module, images, num):
    """The same training in the plainest way: one network after the other, nothing shared, nothing frozen."""
    rate, losses = 0.1, []
    generator, discriminator = module.generator, module.discriminator
    for iteration in range(num):
        for update, real in enumerate(images[iteration].chunk(module.n_critic)):
            noise = Noise(torch.Generator(), (module.seed, "discriminator", iteration, update))
            latents = noise.normal("latents", len(real), module.latent_dim)
            loss = (
                functional.softplus(-discriminator(real)).mean()
                + functional.softplus(discriminator(generator(latents).detach())).mean()
            )
            descend(discriminator, loss, rate)
        if not module.reuses_fake:
            latents = Noise(torch.Generator(), (module.seed, "generator", iteration)).normal(
                "latents", len(real), module.latent_dim
            )
        loss = functional.softplus(-discriminator(generator(latents))).mean()
        descend(generator, loss, rate)
        losses.append(loss.item())
    return losses


def descend(network, loss, rate):
    parameters = list(network.parameters())
    with torch.no_grad():
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter -= rate * gradient
