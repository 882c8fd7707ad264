"""A GAN on several processes with plain torch, right, or with one fault: `gan_script.py [FAULT] [STEPS]`."""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import softplus
from torch.nn.parallel import DistributedDataParallel

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
WRAPPED = (  # by DistributedDataParallel; in the other cases, the script averages gradients by hand
    "none",
    "averages_differ",
    "copied_before_broadcast",
    "counters_differ",
    "equal_images",
    "same_inputs",
    "shared_inputs",
    "stale_gradients",
    "synchronizes_each_microbatch",
)
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 6


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, latents):
        images = super().forward(latents)
        return images.sign() if FAULT == "equal_images" else images


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        self.unused = nn.Linear(2, 2) if FAULT == "never_a_gradient" else None
        self.norm = nn.BatchNorm1d(8, affine=False) if FAULT == "local_statistics" else nn.Identity()
        self.dropout = nn.Dropout(0.3 if FAULT == "same_random_numbers" else 0.0)
        self.register_buffer("codebook", torch.zeros(3))
        self.register_buffer("largest", torch.zeros(4))

    def forward(self, images):
        if FAULT == "buffers_differ":
            self.codebook += images.detach().mean(0)[:3]
        if FAULT == "counters_differ":
            self.largest += (images.detach() > 0).sum(0)[:4]
        return self.layers(self.dropout(self.norm(images)))


def average(module, divisor):
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= divisor


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank if FAULT in ("weights_never_equal", "copied_before_broadcast") else 0)
    generator, discriminator = Generator(), Discriminator()
    average_generator = copy.deepcopy(generator)
    if FAULT == "averages_differ":
        with torch.no_grad():
            average_generator[0].weight.add_(0.01 * (1 + rank))
    by_hand = FAULT not in WRAPPED
    wrapped_g, wrapped_d = generator, discriminator
    if not by_hand:
        wrapped_g = DistributedDataParallel(generator)
        wrapped_d = DistributedDataParallel(discriminator, broadcast_buffers=False)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    torch.manual_seed(0 if FAULT in ("same_random_numbers", "same_inputs") else 100 + rank)
    data = torch.randn(16 * STEPS * world_size, 8, generator=torch.Generator().manual_seed(5))

    def synchronize(module):
        if not by_hand:
            return
        divisor = {"gradients_summed": 1, "gradients_averaged_twice": world_size**2}.get(FAULT, world_size)
        if FAULT == "gradients_not_averaged" and module is discriminator:
            return
        average(module, divisor)
        if FAULT == "gradients_differ" and module is discriminator:
            module.layers[0].weight.grad += 0.1 * rank
        if FAULT == "factor_of_each_rank" and module is discriminator:
            for parameter in module.parameters():
                parameter.grad *= 1 + rank

    def train_discriminator(real, latents, skips):
        for parameter in generator.parameters():
            parameter.requires_grad_(FAULT == "stale_gradients")
        if FAULT != "stale_gradients":
            optimizer_d.zero_grad()
        pieces = 2 if FAULT == "synchronizes_each_microbatch" else 1
        for images, noise in zip(real.chunk(pieces), latents.chunk(pieces), strict=True):
            loss = softplus(-wrapped_d(images)).mean() + softplus(wrapped_d(generator(noise).detach())).mean()
            (loss / pieces).backward()
        synchronize(discriminator)
        if not skips:
            optimizer_d.step()
        if FAULT == "stale_gradients":
            optimizer_d.zero_grad()
        for parameter in generator.parameters():
            parameter.requires_grad_(True)

    def train_generator(latents):
        for parameter in discriminator.parameters():
            parameter.requires_grad_(FAULT == "stale_gradients")
        optimizer_g.zero_grad()
        softplus(-discriminator(wrapped_g(latents))).mean().backward()
        synchronize(generator)
        optimizer_g.step()
        for parameter in discriminator.parameters():
            parameter.requires_grad_(True)

    for step in range(STEPS):
        first = step * 16 * world_size + (0 if FAULT == "same_inputs" else 16 * rank)
        if FAULT == "shared_inputs":
            first = step * 16 * world_size + 8 * rank
        real, latents = data[first : first + 16], torch.randn(16, 4)

        if FAULT == "order_of_steps":
            optimizers = [optimizer_d, optimizer_g]
            softplus(-discriminator(generator(latents))).mean().backward()
            synchronize(discriminator)
            synchronize(generator)
            for optimizer in optimizers if rank == 0 else reversed(optimizers):
                optimizer.step()
                optimizer.zero_grad()
        else:
            train_discriminator(real, latents, FAULT == "steps_of_some_ranks" and rank == 1 and step == 3)
            train_generator(latents)
        with torch.no_grad():
            for mine, theirs in zip(average_generator.parameters(), generator.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
    dist.barrier()
    dist.destroy_process_group()


main()
