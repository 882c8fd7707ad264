"""Random numbers as a function of (seed, iteration, step, purpose, index), independent of the number of ranks but for
dropout.
"""

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
    """Random numbers for one step of one network.

    Each rank draws the numbers of the full global batch and returns its slice, so that two ranks with half a batch each
    use the same numbers as one process, and a run can resume on another number of ranks. The generator is on the
    device and needs no synchronization with the host.

    Args:
        generator: scratch generator on the target device; every draw reseeds it.
        key: seed, iteration and step.
        rank, world_size: rank of this process and number of processes, which determine the slice.
        microbatches: number of microbatches in the global batch; this process returns its slice of each, in the same
            way as `StepSampler` distributes images.
    """

    generator: torch.Generator
    key: tuple[int | str, ...]
    rank: int = 0
    world_size: int = 1
    microbatches: int = 1

    def normal(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns this rank's standard normal numbers (num, *shape)."""
        return self._draw(torch.randn, purpose, num, shape)

    def uniform(self, purpose: str, num: int, *shape: int) -> Float[Tensor, "n *shape"]:
        """Returns this rank's uniform numbers in [0, 1) (num, *shape)."""
        return self._draw(torch.rand, purpose, num, shape)

    def _draw(self, function, purpose: str, num: int, shape: tuple[int, ...]) -> Tensor:
        self.generator.manual_seed(mix(*self.key, purpose))
        full = function(num * self.world_size, *shape, generator=self.generator, device=self.generator.device)
        if self.world_size == 1:  # the slice is everything, in the same order
            return full
        return full.unflatten(0, (self.microbatches, self.world_size, -1))[:, self.rank].flatten(0, 1)


def seed_dropout(device: torch.device, seed: int) -> None:
    """Seeds the default generators, which layers such as dropout use, on the host and the current device.

    `torch.manual_seed` seeds all devices and, if CUDA is installed but unused, formats a stack trace in every call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def forked() -> AbstractContextManager[None]:
    """Returns a context that restores the state of the random generators at its end."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices=devices)
