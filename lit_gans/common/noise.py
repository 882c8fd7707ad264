"""Random numbers as a function of (seed, iteration, step, purpose, index), independent of the number of ranks."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def mix(*keys: int | str) -> int:
    """Returns a 63-bit seed that depends on every key and on their order."""
    digest = hashlib.blake2b(repr(keys).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class Noise:
    """Random numbers of one step of one network.

    Each rank draws the numbers of the full global batch and returns its slice: two ranks with half a batch each see
    what one process sees, and a run resumes on another number of ranks. The generator is on the device: nothing waits
    for the host.

    Args:
        generator: scratch generator on the device of the numbers; every draw reseeds it.
        key: seed, iteration and step.
        rank, world_size: the slice that this process returns.
        microbatches: number of microbatches of the global batch; of each this process returns its slice, as
            `StepSampler` deals out images.
    """

    generator: torch.Generator
    key: tuple[int | str, ...]
    rank: int = 0
    world_size: int = 1
    microbatches: int = 1

    def normal(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns this rank's `num` of standard normal numbers (num, *shape)."""
        return self._draw(torch.randn, purpose, num, shape)

    def uniform(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns this rank's `num` of uniform numbers in [0, 1) (num, *shape)."""
        return self._draw(torch.rand, purpose, num, shape)

    def _draw(self, function, purpose: str, num: int, shape: tuple[int, ...]) -> Tensor:
        self.generator.manual_seed(mix(*self.key, purpose))
        full = function(num * self.world_size, *shape, generator=self.generator, device=self.generator.device)
        return full.unflatten(0, (self.microbatches, self.world_size, -1))[:, self.rank].flatten(0, 1)


def seed_dropout(device: torch.device, seed: int) -> None:
    """Seeds the generators that layers such as dropout draw from, on the host and on the one device in use.

    `torch.manual_seed` does more, and where CUDA is installed but idle it formats a stack trace in every call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def forked() -> AbstractContextManager[None]:
    """Returns a context in which random numbers are drawn without a trace outside it."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices=devices)
