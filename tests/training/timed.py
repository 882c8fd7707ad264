"""`python -m tests.training.timed scores|kornia` prints a ratio of processor times, on one thread and in turns.

`scores`: a discriminator's step (losses, penalties, backward) of `r3gan_digits` with `share_scores=true`, by one whose
R1 and R2 have forwards of their own.

`kornia` (after `pip install kornia`): a chain of kornia's operations by those of ADA, forward and backward. Both
mirror, turn by right angles, shift, scale, rotate, change colors and hide a square of 64 images of 64x64, each with
probability 0.5. Before, both are differentiated twice, as R1 and R2 through an augmentation require.
"""

import sys
import time

import torch

from benchmarks.common import ratios, take_turns
from lit_gans.models.r3gan import R3GAN
from lit_gans.training.ada_operations import NUM_NUMBERS, transformed
from lit_gans.training.backend import Backend
from lit_gans.training.step import TrainingStep

ROUNDS, P = 10, 0.5


def scores():
    """Returns a discriminator's step of each kind."""
    real, fake = torch.rand(2, 32, 1, 32, 32) * 2 - 1
    size = {"generator_width": 12, "discriminator_width": 12, "constant_until": 4, "blocks": 1, "channels": 1}

    def step(module):
        terms = TrainingStep(module, Backend({})).discriminator_terms({"image": real, "fake": fake})
        sum(terms["discriminator"]).backward()
        module.zero_grad()

    modules = {name: R3GAN(image_size=32, **size, share_scores=name == "shared") for name in ("shared", "own")}
    return {name: lambda module=module: step(module) for name, module in modules.items()}


def kornia():
    """Returns a forward and a backward of each chain of operations."""
    from kornia import augmentation

    theirs = torch.nn.Sequential(
        augmentation.RandomHorizontalFlip(p=P),
        augmentation.RandomRotation90(times=(0, 3), p=P),
        augmentation.RandomAffine(0.0, translate=(0.125, 0.125), p=P),
        augmentation.RandomAffine(180.0, scale=(0.8, 1.25), p=P),
        augmentation.ColorJiggle(0.2, 0.5, 0.5, 0.5, p=P / 2),
        augmentation.RandomErasing((0.25, 0.25), (1.0, 1.0), p=P),
    )
    images = torch.rand(64, 3, 64, 64, requires_grad=True)
    chains = {"kornia": lambda: theirs(images)}
    chains["lit_gans"] = lambda: transformed(2 * images - 1, torch.rand(64, NUM_NUMBERS), P)
    for chain in chains.values():
        (slope,) = torch.autograd.grad(chain().square().sum(), images, create_graph=True)
        slope.square().sum().backward()
    return {name: lambda chain=chain: chain().square().sum().backward() for name, chain in chains.items()}


def seconds(work):
    """Returns the processor time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    works = {"scores": scores, "kornia": kornia}[sys.argv[1]]()
    for work in works.values():
        work()
    found = take_turns({name: lambda work=work: seconds(work) for name, work in works.items()}, ROUNDS)
    print(" : ".join(works), ratios(*found.values()))
