"""Random numbers that are a function of (seed, iteration, step, purpose, index).

The numbers do not depend on the number of ranks. The only exception is dropout.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def mix(*keys: int | str) -> int:
    """Returns a 63-bit seed that depends on all keys and on their order."""
    digest = hashlib.blake2b(repr(keys).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class Noise:
    """Source of the random numbers for one step of one network.

    Each rank draws the numbers for the full global batch and returns its own slice. Two ranks with half the batch size
    therefore use the same numbers as a single process, and a run can resume with a different number of ranks. The
    generator is on the device, so that no synchronization with the host is needed.

    Args:
        generator: scratch generator on the target device. It is reseeded for every draw.
        key: seed, iteration and step.
        rank, world_size: rank of this process and number of processes, which determine the slice.
        microbatches: number of microbatches in the global batch. This process returns its slice of each microbatch, in
            the same way as `StepSampler` distributes the images.
    """

    generator: torch.Generator
    key: tuple[int | str, ...]
    rank: int = 0
    world_size: int = 1
    microbatches: int = 1

    def normal(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns standard normal random numbers for this rank, of shape (num, *shape)."""
        return self._draw(torch.randn, purpose, num, shape)

    def uniform(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns uniform random numbers in [0, 1) for this rank, of shape (num, *shape)."""
        return self._draw(torch.rand, purpose, num, shape)

    def _draw(self, function, purpose: str, num: int, shape: tuple[int, ...]) -> Tensor:
        self.generator.manual_seed(mix(*self.key, purpose))
        full = function(num * self.world_size, *shape, generator=self.generator, device=self.generator.device)
        if self.world_size == 1:  # a single rank uses all numbers, in this order
            return full
        return full.unflatten(0, (self.microbatches, self.world_size, -1))[:, self.rank].flatten(0, 1)


def seed_dropout(device: torch.device, seed: int) -> None:
    """Seeds the default generators of the host and of `device`, which layers such as dropout use.

    `torch.manual_seed` is not used, because it seeds all devices. In addition, it formats a stack trace in every call
    if CUDA is installed but unused.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def forked() -> AbstractContextManager[None]:
    """Context manager that restores the states of torch's random number generators on exit."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices=devices)
