"""A GAN for any loop on several processes, right, or with one planted fault. A script for each kind of loop trains it.

A loop gives a `Loop`; everything else, and each fault, is the same in all loops.
"""

import copy
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

STEPS, BATCH = 6, 8
FAULTS = {  # planted, and the kind that the check reports
    "weights_of_each_rank": "weights_never_equal",
    "weight_decay_of_each_rank": "weights_part",
    "unwrapped_network": "gradients_not_averaged",
    "never_synchronized": "gradients_not_averaged",
    "gradients_summed": "gradients_summed",
    "gradients_averaged_twice": "gradients_averaged_twice",
    "regularized_after_the_average": "gradients_differ",
    "clipped_by_each_rank": "factor_of_each_rank",
    "reached_on_one_rank": "gradient_on_some_ranks",
    "adaptive_weight": "loss_factor_of_each_rank",
    "running_scale_of_the_loss": "loss_factor_of_each_rank",
    "overflow_on_one_rank": "skipped_on_some_ranks",
    "skipped_by_one_rank": "steps_of_some_ranks",
    "other_order_on_one_rank": "order_of_steps",
    "other_discriminator_on_one_rank": "order_of_steps",
    "same_data": "same_inputs",
    "data_in_part": "shared_inputs",
    "same_dropout": "same_random_numbers",
    "codebook_of_each_rank": "buffers_differ",
    "average_of_other_weights": "averages_differ",
    "stale_gradients": "stale_gradients",
}
ALSO = {  # further kinds that a fault brings with it
    "weights_of_each_rank": {"averages_differ"},
    "overflow_on_one_rank": {"order_of_steps", "averages_differ", "gradients_differ"},
    "skipped_by_one_rank": {"order_of_steps", "averages_differ"},
    "other_discriminator_on_one_rank": {"steps_of_some_ranks", "averages_differ"},
    "same_dropout": {"same_inputs"},
    "clipped_by_each_rank": {"averages_differ"},
}


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))


class Discriminator(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        self.dropout = nn.Dropout(0.3 if fault == "same_dropout" else 0.0)
        self.register_buffer("codebook", torch.zeros(3))

    def forward(self, images):
        if self.fault == "codebook_of_each_rank":
            self.codebook += images.detach().mean(0)[:3]
        return self.layers(self.dropout(images))


class Loop:
    """What a kind of loop does in its own way.

    Attributes:
        rank, world_size: of this process.
        networks: the networks as they are called, by name.
        plain: the same networks without their wrappers.
        optimizers: the optimizers as they are stepped, by the name of their network.
        raw_optimizers: the same optimizers without their wrappers.
    """

    def __init__(self, rank, world_size, plain, raw_optimizers, networks=None, optimizers=None):
        self.rank, self.world_size = rank, world_size
        self.plain, self.raw_optimizers = plain, raw_optimizers
        self.networks, self.optimizers = networks or plain, optimizers or raw_optimizers

    def backward(self, loss):
        loss.backward()

    def unsynchronized(self, name):
        """Returns a context in which no gradient of a network is averaged."""
        return self.networks[name].no_sync()


def build(fault):
    """Returns the networks."""
    torch.manual_seed(0)
    return {"generator": Generator(), "first": Discriminator(fault), "second": Discriminator(fault)}


def optimizers_of(networks):
    """Returns an optimizer for each network."""
    return {name: torch.optim.Adam(network.parameters(), lr=1e-2) for name, network in networks.items()}


def data(world_size):
    """Returns the images of all ranks."""
    return torch.randn(STEPS * BATCH * world_size, 8, generator=torch.Generator().manual_seed(5))


def faulty_loader(fault, rank, world_size):
    """Returns the batches of a rank, which has images of another rank, or None if the fault is another one."""
    apart = {"same_data": 0, "data_in_part": BATCH // 2}.get(fault)
    if apart is None:
        return None
    starts = (step * BATCH * world_size + apart * rank for step in range(STEPS))
    return DataLoader(data(world_size), BATCH, sampler=[row + start for start in starts for row in range(BATCH)])


def seed(fault, rank):
    """Seeds the training of a rank."""
    torch.manual_seed(0 if fault in ("same_dropout", "same_data") else 100 + rank)


class Training:
    """The iterations of a GAN with two discriminators, in any loop."""

    def __init__(self, fault, loop):
        self.fault, self.loop, rank = fault, loop, loop.rank
        self.discriminators = [loop.networks["first"], loop.networks["second"]]
        self.average = copy.deepcopy(loop.plain["generator"])
        self.scale, self.num_steps = torch.ones(()), 0
        self.scaler = torch.amp.GradScaler("cpu") if fault == "overflow_on_one_rank" else None
        with torch.no_grad():
            if fault == "weights_of_each_rank":
                loop.plain["generator"][0].weight.add_(0.01 * rank)
                self.average[0].weight.add_(0.01 * rank)
            if fault == "average_of_other_weights":
                self.average[0].weight.add_(0.01 * (1 + rank))
        if fault == "weight_decay_of_each_rank":
            for group in loop.raw_optimizers["first"].param_groups:
                group["weight_decay"] = 0.1 * rank

    def iterate(self, real):
        """Trains the discriminators and the generator once."""
        self.num_steps += 1
        latents = torch.randn(len(real), 4)
        swaps = self.fault == "other_discriminator_on_one_rank" and self.loop.rank == 1
        for number in (1, 0) if swaps else (0, 1):
            self._train(
                ("first", "second")[number], lambda number=number: self._discriminator_loss(number, real, latents)
            )
        self._train("generator", lambda: self._generator_loss(latents))
        with torch.no_grad():
            for mine, theirs in zip(self.average.parameters(), self.loop.plain["generator"].parameters(), strict=True):
                mine.lerp_(theirs, 0.1)

    def _discriminator_loss(self, number, real, latents):
        fake = self.loop.plain["generator"](latents).detach()
        called = self.discriminators[number]
        if self.fault == "unwrapped_network" and number == 0:
            called = self.loop.plain["first"]
        scores = called(torch.cat([real, fake])).chunk(2)
        loss = softplus(-scores[0]).mean() + softplus(scores[1]).mean()
        if self.fault == "adaptive_weight" and number == 0:
            weight = self.loop.plain["first"].layers[0].weight
            loss = loss * torch.autograd.grad(loss, weight, retain_graph=True)[0].norm()
        if self.fault == "running_scale_of_the_loss" and number == 0:
            self.scale = self.scale.lerp(loss.detach(), 0.1)
            loss = loss / self.scale
        return loss

    def _generator_loss(self, latents):
        fake = self.loop.networks["generator"](latents)
        return sum(softplus(-self.loop.plain[name](fake)).mean() for name in ("first", "second"))

    def _train(self, name, loss_of):
        loop, optimizer = self.loop, self.loop.optimizers[name]
        others = [network for other, network in loop.plain.items() if other != name]
        freezes = self.fault != "stale_gradients"
        for other in others if freezes else ():
            other.requires_grad_(False)
        if freezes or name == "generator":
            optimizer.zero_grad()
        with loop.unsynchronized(name) if (self.fault, name) == ("never_synchronized", "first") else nullcontext():
            loss = loss_of()
            loop.backward(loss if self.scaler is None else self.scaler.scale(loss))
        for other in others if freezes else ():
            other.requires_grad_(True)
        if name == "first":
            self._spoil(loop.plain["first"])
        self._step(name)
        if not freezes:
            optimizer.zero_grad()

    def _spoil(self, network):
        """Changes the gradients after they were averaged."""
        rank, world_size = self.loop.rank, self.loop.world_size
        factors = {"gradients_summed": world_size, "gradients_averaged_twice": 1 / world_size}
        factor = factors.get(self.fault, 1 / (1 + rank) if self.fault == "clipped_by_each_rank" else 1)
        for parameter in network.parameters():
            parameter.grad.mul_(factor)
        if self.fault == "regularized_after_the_average":
            network.layers[0].weight.grad.add_(0.1 * rank)
        if self.fault == "reached_on_one_rank" and rank == 1:
            network.layers[2].bias.grad = None
        if self.fault == "overflow_on_one_rank" and rank == 1 and self.num_steps == 3:
            network.layers[0].weight.grad.fill_(float("inf"))

    def _step(self, name):
        loop = self.loop
        if self.scaler is not None:
            self.scaler.step(loop.raw_optimizers[name])
            self.scaler.update()
        elif self.fault == "other_order_on_one_rank" and name != "generator":
            if name == "second":
                for each in ("first", "second") if loop.rank == 0 else ("second", "first"):
                    loop.optimizers[each].step()
        elif (self.fault, name, loop.rank, self.num_steps) != ("skipped_by_one_rank", "first", 1, 3):
            loop.optimizers[name].step()
