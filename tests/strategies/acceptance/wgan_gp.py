"""WGAN-GP: nothing is frozen, each backward names its network; the generator trains in each second iteration."""

import torch
from torch import nn

from lit_gans.strategies.base import backward_arguments

from .example import Example

EVERY = 2


class WGANGP(Example):
    penalized_networks = ("critic",)

    def build(self):
        self.generator = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
        self.critic = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def training_step(self, batch, batch_idx):
        for_generator, for_critic = self.optimizers()
        for_critic.zero_grad()
        self.accumulated(self.critic_loss, batch, **backward_arguments(self.trainer.strategy, "critic"))
        self.step(for_critic)
        if batch_idx % EVERY == 1:
            for_generator.zero_grad()
            self.accumulated(self.generator_loss, batch, **backward_arguments(self.trainer.strategy, "generator"))
            self.step(for_generator)

    def critic_loss(self, real, latents, weights):
        fake = self.generator(latents).detach()
        mixed = (weights * real + (1 - weights) * fake).requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        return 10 * penalty + self.critic(fake).mean() - self.critic(real).mean()

    def generator_loss(self, real, latents, weights):
        return -self.critic(self.generator(latents)).mean()

    def configure_optimizers(self):
        return self.optimizer(self.generator.parameters()), self.optimizer(self.critic.parameters())

    def sample(self, num, generator):
        noise = [torch.randn(num, size, generator=generator) for size in (4, 3)]
        return *noise, torch.rand(num, 1, generator=generator)
