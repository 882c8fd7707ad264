"""A pool of earlier generated images, which the discriminators see beside the new ones (Shrivastava et al. 2017)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class ImagePool:
    """Exchanges generated images for earlier ones.

    The first `size` images are stored and returned. From then on, each image is returned with probability 1/2;
    otherwise it takes the place of a random stored image, which is returned instead. The state is on the device, so
    that no exchange waits for it, and is part of a checkpoint.

    Args:
        size: number of stored images.

    Attributes:
        images: (size, c, h, w), None before the first exchange; those from `count` on are not used yet.
        count: number of stored images, a scalar.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: Tensor | None = None
        self.count = torch.zeros(1, dtype=torch.long)

    def exchange(self, new: Float[Tensor, "n c h w"], numbers: Float[Tensor, "n 2"]) -> Float[Tensor, "n c h w"]:
        """Returns new or stored images, one after the other.

        Args:
            new: generated images, without a graph.
            numbers: uniform in [0, 1): whether an image is exchanged, and for which.
        """
        if self.images is None:
            self.images = new.new_zeros(self.size, *new.shape[1:])
        images, count = self.images, self.count = self.images.to(new), self.count.to(new.device)
        seen = []
        for image, number in zip(new[:, None], numbers, strict=True):
            full = count == self.size
            place = torch.where(full, (number[1] * self.size).long(), count)
            stored = images.index_select(0, place)
            stays, leaves = full & (number[0] < 0.5), full & (number[0] >= 0.5)
            seen.append(torch.where(leaves, stored, image))
            images.index_copy_(0, place, torch.where(stays, stored, image))
            count += ~full
        return torch.cat(seen)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns a copy of the state on the CPU; empty before the first exchange."""
        return {} if self.images is None else {"images": self.images.cpu().clone(), "count": self.count.cpu().clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restores a state; an empty one empties the pool."""
        self.images, self.count = state.get("images"), state.get("count", torch.zeros(1, dtype=torch.long))
