"""Loops without a trainer, right, or with a network whose gradients no rank averages: FSDP2, DeepSpeed, closures."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import softplus
from torch.nn.parallel import DistributedDataParallel

from lit_gans.common._compat.deepspeed import forbid_compiled_operations

STEPS = 4


def build():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    return generator, nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def batches():
    """Yields images and latents of this rank."""
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        yield torch.randn(8, 8), torch.randn(8, 4)


def of_discriminator(discriminator, generator, real, latents):
    scores = discriminator(torch.cat([real, generator(latents).detach()])).chunk(2)
    return softplus(-scores[0]).mean() + softplus(scores[1]).mean()


def train_with_fsdp(is_right):
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    generator, discriminator = build()
    fully_shard(generator, mesh=mesh)
    if is_right:
        fully_shard(discriminator, mesh=mesh)
    for_generator, for_discriminator = (torch.optim.Adam(each.parameters()) for each in (generator, discriminator))
    for real, latents in batches():
        for_discriminator.zero_grad()
        of_discriminator(discriminator, generator, real, latents).backward()
        for_discriminator.step()
        for_generator.zero_grad()
        discriminator.requires_grad_(False)
        softplus(-discriminator(generator(latents))).mean().backward()
        discriminator.requires_grad_(True)
        for_generator.step()


def train_with_deepspeed(is_right, stage):
    forbid_compiled_operations(deepspeed)
    deepspeed.init_distributed("gloo", verbose=False)
    config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": stage}}
    generator, discriminator = build()
    for_generator, for_discriminator = (
        deepspeed.initialize(model=each, optimizer=torch.optim.Adam(each.parameters()), config=config)[0]
        for each in (generator, discriminator)
    )
    for real, latents in batches():
        loss = of_discriminator(for_discriminator, for_generator, real, latents)
        if is_right:
            for_discriminator.backward(loss)
        else:
            with for_discriminator.no_sync():
                for_discriminator.backward(loss)
        for_discriminator.step()
        discriminator.requires_grad_(False)
        for_generator.backward(softplus(-discriminator(for_generator(latents))).mean())
        discriminator.requires_grad_(True)
        for_generator.step()


def train_with_closures(is_right):
    dist.init_process_group("gloo")
    generator, discriminator = build()
    wrapped_g = DistributedDataParallel(generator)
    wrapped_d = DistributedDataParallel(discriminator)
    for_generator, for_discriminator = (torch.optim.Adam(each.parameters()) for each in (generator, discriminator))
    for real, latents in batches():

        def discriminator_loss(real=real, latents=latents):
            for_discriminator.zero_grad()
            called = wrapped_d if is_right else discriminator
            loss = of_discriminator(called, generator, real, latents)
            loss.backward()
            return loss

        def generator_loss(latents=latents):
            for_generator.zero_grad()
            loss = softplus(-discriminator(wrapped_g(latents))).mean()
            loss.backward()
            return loss

        for_discriminator.step(discriminator_loss)
        discriminator.requires_grad_(False)
        for_generator.step(generator_loss)
        discriminator.requires_grad_(True)


LOOPS = {
    "fsdp": train_with_fsdp,
    "deepspeed_0": lambda is_right: train_with_deepspeed(is_right, 0),
    "deepspeed_2": lambda is_right: train_with_deepspeed(is_right, 2),
    "closures": train_with_closures,
}
