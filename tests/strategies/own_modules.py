"""Modules of somebody who knows nothing of this project: correct ones, and ones with a mistake that is refused."""

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

from lit_gans.strategies.base import backward_arguments


class Own(LightningModule):
    seed = 0

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(self.seed)
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        fake = self.generator(latents)
        self.train_only(self.critic)
        self.critic_backward(real, fake.detach())
        self.step(for_critic)
        self.train_only(self.generator)
        self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
        self.step(for_generator)

    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic(real)).mean() + softplus(self.critic(fake)).mean())

    def step(self, optimizer):
        optimizer.step()
        optimizer.zero_grad()

    def train_only(self, network):
        self.requires_grad_(False)
        network.requires_grad_(True)

    def on_train_batch_end(self, *_):
        self.requires_grad_(True)

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.generator, self.critic)]

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(1)
        batches = [(torch.randn(4, 4, generator=generator), torch.randn(4, 3, generator=generator)) for _ in range(6)]
        part = slice(self.global_rank, None, self.trainer.world_size)
        return DataLoader([(real[part], latents[part]) for real, latents in batches], batch_size=None)


class Undeclared(Own):
    """With a gradient penalty that it does not declare to the strategies."""

    def critic_backward(self, real, fake):
        images = real.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.critic(images).sum(), images, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        self.manual_backward(penalty + self.critic(fake).mean() - self.critic(real).mean())


class Penalized(Undeclared):
    penalized_networks = ("critic",)


class TwoBackwards(Own):
    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic(real)).mean())
        self.manual_backward(softplus(self.critic(fake)).mean())


class Drops(Own):
    """Clears the gradients of a backward without a step."""

    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).square().mean())
        self.optimizers()[1].zero_grad()
        super().critic_backward(real, fake)


class SeededByRank(Own):
    """Every rank draws its own weights; one network never trains, and there is a buffer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("scale", torch.rand(4))

    @property
    def seed(self):
        return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0

    def critic_backward(self, real, fake):
        super().critic_backward(self.features(real) * self.scale, self.features(fake) * self.scale)

    def train_only(self, network):
        for each in (self.generator, self.critic):
            each.requires_grad_(each is network)

    def on_train_batch_end(self, *_):
        self.train_only(self.generator)
        self.critic.requires_grad_(True)


class Tied(Own):
    """One layer twice in a network, and Adam."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.critic.insert(2, self.critic[0])

    def configure_optimizers(self):
        networks = (self.generator, self.critic)
        return [torch.optim.Adam(network.parameters(), 0.01, eps=1e-3) for network in networks]


class Clips(Own):
    def step(self, optimizer):
        self.clip_gradients(optimizer, 0.01, "norm")
        super().step(optimizer)


class StepsTheBareOptimizer(Own):
    """Steps what is in Lightning's wrapper."""

    def step(self, optimizer):
        super().step(optimizer.optimizer)


class StepsItsOwn(Own):
    """Steps the optimizers that it has configured, not those that Lightning returns."""

    def configure_optimizers(self):
        self.configured = super().configure_optimizers()
        return self.configured

    def step(self, optimizer):
        super().step(self.configured[self.optimizers().index(optimizer)])


class BeginsFrozen(Own):
    def __init__(self):
        super().__init__()
        self.critic.requires_grad_(False)


class Misnames(Own):
    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).mean() - self.critic(fake).mean(), network="crtic")


class Names(Own):
    """Names the network of each backward instead of freezing others, where a strategy knows that."""

    def train_only(self, network):
        self.named = backward_arguments(self.trainer.strategy, "critic" if network is self.critic else "generator")
        if not self.named:
            super().train_only(network)

    def manual_backward(self, loss):
        super().manual_backward(loss, **self.named)


class Partly(Own):
    """A generator with two outputs, of which each iteration trains one."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
        self.heads = nn.ModuleDict({"even": nn.Linear(5, 4), "odd": nn.Linear(5, 4)})

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        fake = self.heads["odd" if batch_idx % 2 else "even"](self.generator(latents))
        self.toggle_optimizer(for_critic)
        self.critic_backward(real, fake.detach())
        self.step(for_critic)
        self.untoggle_optimizer(for_critic)
        self.toggle_optimizer(for_generator)
        self.manual_backward(softplus(-self.critic(fake)).mean())
        self.step(for_generator)
        self.untoggle_optimizer(for_generator)

    def configure_optimizers(self):
        groups = ([*self.generator.parameters(), *self.heads.parameters()], self.critic.parameters())
        return [torch.optim.SGD(group, 0.1) for group in groups]


class TwoOptimizers(Own):
    """Two optimizers for one child, each of some layers."""

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for optimizer, part in zip(self.optimizers(), (self.generator, *self.critic[::2]), strict=True):
            self.train_only(part)
            if part is self.generator:
                self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
            else:
                self.critic_backward(real, self.generator(latents).detach())
            self.step(optimizer)

    def configure_optimizers(self):
        first, second = (list(layer.parameters()) for layer in (self.critic[0], self.critic[2]))
        return [torch.optim.SGD(part, 0.1) for part in (self.generator.parameters(), first, second)]


class Scheduled(Own):
    """Has a schedule for each group of its optimizers, one of which has no parameters."""

    def on_train_batch_end(self, *_):
        super().on_train_batch_end()
        for scheduler in self.lr_schedulers():
            scheduler.step()

    def configure_optimizers(self):
        groups = [[{"params": []}, {"params": network.parameters()}] for network in (self.generator, self.critic)]
        optimizers = [torch.optim.SGD(each, 0.1) for each in groups]
        rates = [lambda step: 1.0, lambda step: 0.5**step]
        return optimizers, [torch.optim.lr_scheduler.LambdaLR(optimizer, rates) for optimizer in optimizers]


class Sampled(nn.Sequential):
    """Computes in a method beside `forward`."""

    def sample(self, inputs):
        for layer in self:
            inputs = layer(inputs)
        return inputs


class Samples(Own):
    """Calls such a method in its steps, and declares it, to no effect on networks that are not sharded."""

    def __init__(self):
        super().__init__()
        self.critic = Sampled(*self.critic)

    def on_train_start(self):
        register_fsdp_forward_method(self.critic, "sample")

    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic.sample(real)).mean() + softplus(self.critic.sample(fake)).mean())


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
