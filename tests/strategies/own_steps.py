"""Modules that some strategies refuse: they call other methods than `forward`, or have automatic optimization."""

import torch
from torch import nn
from torch.nn.functional import softplus

from .own_modules import Own


class Sampled(nn.Sequential):
    """Computes in a method beside `forward`."""

    def sample(self, inputs):
        for layer in self:
            inputs = layer(inputs)
        return inputs


class Samples(Own):
    """Calls such a method in its steps."""

    def __init__(self):
        super().__init__()
        self.critic = Sampled(*self.critic)

    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic.sample(real)).mean() + softplus(self.critic.sample(fake)).mean())


class SamplesFirst(Samples):
    """Named apart, as each module is refused with one sentence."""


class CallsALayer(Own):
    """Calls a layer of a network."""

    def critic_backward(self, real, fake):
        hidden = [self.critic[1](self.critic[0](each)) for each in (real, fake)]
        self.manual_backward(softplus(-self.critic[2](hidden[0])).mean() + softplus(self.critic[2](hidden[1])).mean())


class Automatic(Own):
    """One optimizer and automatic optimization."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = True

    def training_step(self, batch, batch_idx):
        real, latents = batch
        return softplus(-self.critic(self.generator(latents))).mean() + softplus(self.critic(real)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
