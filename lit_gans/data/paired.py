"""Base class of paired data for image-to-image translation."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import UInt8
from torch import Tensor

from lit_gans.data.base import ImageData, ImagesInMemory

Pairs = dict[str, UInt8[Tensor, "n c s s"]]  # `input`, and `image`, its target


class PairedData(ImageData):
    """Serves pairs of images. Sources override `pairs`."""

    def pairs(self, held_out: bool) -> Pairs:
        """Returns the pairs for training, or the held-out pairs."""
        raise NotImplementedError

    @property
    def input_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.channels

    def make_dataset(self) -> ImagesInMemory:
        pairs = self.pairs(held_out=False)
        return ImagesInMemory(pairs["image"], torch.zeros(len(pairs["image"]), dtype=torch.long), input=pairs["input"])

    @cached_property
    def held_out(self) -> Pairs:
        """Pairs that are excluded from training."""
        return self.pairs(held_out=True)
