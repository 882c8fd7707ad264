"""Modules of somebody who knows nothing of this project: correct ones, and ones with a mistake that is refused."""

from copy import deepcopy

import torch
from torch import nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from lit_gans.common.lightning import LightningModule  # of the package that is imported
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


class DrawsAtTheStart(Own):
    """Each rank draws the weights of a layer after they were broadcast."""

    def on_train_start(self):
        torch.manual_seed(self.global_rank)
        self.critic[2].reset_parameters()


class Normalizes(Own):
    """Two forwards of a network with batch norm before one backward."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))


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


class ClipsInTurn(Own):
    """Clips the gradients of every third step to the smaller of two norms, and gradients that it then drops."""

    def step(self, optimizer):
        if self.trainer.global_step % 3 == 0:
            self.clip_gradients(optimizer, 0.01, "norm")
            self.clip_gradients(optimizer, 0.02, "norm")
        super().step(optimizer)

    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).mean())
        self.clip_gradients(self.optimizers()[1], 1e-3, "norm")
        self.optimizers()[1].zero_grad()
        super().critic_backward(real, fake)


class ClipsValues(Own):
    def step(self, optimizer):
        self.clip_gradients(optimizer, 0.01, "value")
        super().step(optimizer)


class ClipsTooEarly(Own):
    """Clips the gradients of the first of two backward passes."""

    def critic_backward(self, real, fake):
        super().critic_backward(real, fake)
        self.clip_gradients(self.optimizers()[1], 0.01, "norm")
        super().critic_backward(real, fake)


class ClipsLocal(Own):
    """Clips gradients that are not averaged yet."""

    def critic_backward(self, real, fake):
        with self.trainer.strategy.block_backward_sync():
            super().critic_backward(real, fake)
            self.clip_gradients(self.optimizers()[1], 0.01, "norm")


class ClipsTheBareOptimizer(Own):
    """Clips the gradients of an optimizer of its own, which has none under DeepSpeed."""

    def configure_optimizers(self):
        self.bare = super().configure_optimizers()
        return self.bare

    def step(self, optimizer):
        self.clip_gradients(self.bare[1], 0.01, "norm")
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

    momentum = 0.0

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
        return [torch.optim.SGD(group, 0.1, momentum=self.momentum) for group in groups]


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


class TrainsBoth(Own):
    """One backward trains both networks, and none is frozen."""

    def training_step(self, batch, batch_idx):
        real, latents = batch
        fake = self.generator(latents)
        scores = self.critic(real), self.critic(fake)
        self.manual_backward((fake - real).square().mean() + softplus(-scores[0]).mean() + softplus(scores[1]).mean())
        for optimizer in self.optimizers():
            self.step(optimizer)


class RetainsGraph(TrainsBoth):
    """Two backwards of one forward, frozen in between, and both steps at the end; one is without gradients at first."""

    def training_step(self, batch, batch_idx):
        real, latents = batch
        if batch_idx == 0:
            self.step(self.optimizers()[1])
        fake = self.generator(latents)
        losses = softplus(-self.critic(fake)).mean(), softplus(-self.critic(real)).mean() + self.critic(fake).mean()
        for network, loss in zip((self.generator, self.critic), losses, strict=True):
            self.train_only(network)
            self.manual_backward(loss, retain_graph=True)
        for optimizer in self.optimizers():
            self.step(optimizer)


class CallsInside(Own):
    """Calls a module inside a network, also with what the network computes otherwise."""

    def critic_backward(self, real, fake):
        hidden = torch.tanh(self.critic[0](fake))
        self.manual_backward(softplus(-self.critic(real)).mean() + softplus(self.critic[2](hidden)).mean())


class Policy(nn.Module):
    """Returns a distribution."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))

    def forward(self, latents):
        return torch.distributions.Independent(torch.distributions.Normal(self.mean(latents), 1.0), 1)


class SoftActorCritic(Own):
    """A policy that returns a distribution, a temperature with an optimizer of its own, and a target network."""

    def __init__(self):
        super().__init__()
        self.generator = Policy()
        self.target = deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        states, latents = batch
        for_policy, for_critic, for_alpha = self.optimizers()
        target = (states.sum(dim=1, keepdim=True) + self.target(states)).detach()
        self.train_only(self.critic)
        self.manual_backward((self.critic(states) - target).square().mean())
        self.step(for_critic)
        self.train_only(self.generator)
        policy = self.generator(latents)
        actions = policy.mean + 0.1 * states
        entropy = -policy.log_prob(actions).mean()
        self.manual_backward(-self.critic(actions).mean() - (self.log_alpha.exp() * entropy).sum())
        self.step(for_policy)
        self.requires_grad_(False)
        self.log_alpha.requires_grad_(True)
        self.manual_backward((self.log_alpha.exp() * (entropy.detach() - 1)).sum())
        self.step(for_alpha)
        with torch.no_grad():
            for average, parameter in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                average.data.mul_(0.9).add_(parameter.data, alpha=0.1)

    def on_train_batch_end(self, *_):
        for trained in (self.generator, self.critic, self.log_alpha):
            trained.requires_grad_(True)

    def configure_optimizers(self):
        return [*super().configure_optimizers(), torch.optim.SGD([self.log_alpha], 0.1)]


class ClipsWeights(Own):
    """As a WGAN."""

    def on_train_batch_end(self, *_):
        super().on_train_batch_end()
        for parameter in self.critic.parameters():
            parameter.data.clamp_(-0.1, 0.1)


class ClipsWeightsInPlace(Own):
    """Without `data`."""

    @torch.no_grad()
    def on_train_batch_end(self, *_):
        super().on_train_batch_end()
        for parameter in self.critic.parameters():
            parameter.clamp_(-0.1, 0.1)


class ClipsGathered(ClipsWeightsInPlace):
    """As DeepSpeed's documentation shows for stage 3, where the next step undoes the change."""

    def on_train_batch_end(self, *_):
        parameters = [*self.critic.parameters()]
        if hasattr(parameters[0], "ds_id"):
            import deepspeed

            with deepspeed.zero.GatheredParameters(parameters, modifier_rank=0):
                super().on_train_batch_end()
        else:
            super().on_train_batch_end()


class ReplacesWeights(Own):
    def on_train_batch_end(self, *_):
        super().on_train_batch_end()
        for parameter in self.critic.parameters():
            parameter.data = parameter.data.clamp(-0.1, 0.1)


class StepsPenalized(Penalized, StepsItsOwn):
    """Steps what it has configured itself, with a gradient penalty."""


class AssignsGradients(Own):
    def critic_backward(self, real, fake):
        parameters = [*self.critic.parameters()]
        gradients = torch.autograd.grad(softplus(-self.critic(real)).mean() + self.critic(fake).mean(), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient


class ClipsItself(Own):
    def critic_backward(self, real, fake):
        super().critic_backward(real, fake)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.01)


class NamesInputs(Own):
    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).mean(), inputs=[*self.critic.parameters()])


class AddsParameters(Own):
    """Gives an optimizer further parameters after the first iteration."""

    def __init__(self):
        super().__init__()
        self.critic[0].requires_grad_(False)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end()
        if batch_idx == 0:
            self.optimizers()[1].add_param_group({"params": [*self.critic[0].parameters()]})

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.generator, self.critic[2])]


class SearchesLines(Own):
    def configure_optimizers(self):
        return [torch.optim.LBFGS(network.parameters()) for network in (self.generator, self.critic)]


class Remembers(Partly):
    momentum = 0.5


class Factors(Own):
    def configure_optimizers(self):
        return [torch.optim.Adafactor(network.parameters()) for network in (self.generator, self.critic)]


class FactorsFurther(Own):
    """With a subclass of an optimizer that is refused."""

    def configure_optimizers(self):
        return [_Further(network.parameters()) for network in (self.generator, self.critic)]


class _Further(torch.optim.Adafactor):
    pass


class NormalizesUpdates(Own):
    """With an optimizer whose name differs from that of a refused one in its case only."""

    def configure_optimizers(self):
        return [LAMB(network.parameters(), 0.1) for network in (self.generator, self.critic)]


class LAMB(torch.optim.SGD):
    pass


class TrainsPart(Tied):
    """Adam trains one layer of the critic."""

    def train_only(self, network):
        super().train_only(network)
        self.critic[0].requires_grad_(False)


class TrainsPartLater(Tied):
    """Adam trains one layer of the critic only from some iteration on."""

    def train_only(self, network):
        super().train_only(network)
        if self.trainer.fit_loop.epoch_loop.batch_idx < 3 and not self.trainer.current_epoch:
            self.critic[0].requires_grad_(False)


class TrainsPartLaterWithRMSprop(TrainsPartLater):
    def configure_optimizers(self):
        return [torch.optim.RMSprop(network.parameters(), 0.01, eps=1e-2) for network in (self.generator, self.critic)]


class TrainsCriticLater(Tied):
    """Steps the critic only from the second epoch on."""

    def critic_backward(self, real, fake):
        if self.trainer.current_epoch:
            super().critic_backward(real, fake)


class Recomputes(Own):
    """A reentrant checkpoint, whose parameters are not in the graph of the loss, and weight decay."""

    def critic_backward(self, real, fake):
        images = torch.cat([-real, fake]).requires_grad_()
        self.manual_backward(softplus(checkpoint(self.critic, images, use_reentrant=True)).mean())

    def configure_optimizers(self):
        networks = (self.generator, self.critic)
        return [torch.optim.AdamW(network.parameters(), 0.01, eps=1e-3) for network in networks]


class FailsOnce(Own):
    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        raise ArithmeticError

    def validation_step(self, batch, batch_idx):
        self.critic(self.generator(batch))

    def val_dataloader(self):
        return [torch.ones(2, 3)]


class Double(Own):
    def __init__(self):
        super().__init__()
        self.double()


class Transformer(Own):
    """Layers that compute with the parameters of layers inside them, in a validation otherwise than in training."""

    def __init__(self):
        super().__init__()
        attention = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)
        self.generator.append(nn.Unflatten(1, (1, 4))).append(attention).append(nn.Flatten())

    def validation_step(self, batch, batch_idx):
        return self.generator(batch[1]).mean()

    def val_dataloader(self):
        return self.train_dataloader()
