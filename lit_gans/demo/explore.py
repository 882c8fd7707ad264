"""What the demo shows: images from a seed, a class, truncation and directions, and walks between two seeds."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.latents.directions import directions
from lit_gans.latents.interpolation import slerp
from lit_gans.latents.truncation import truncated
from lit_gans.training.adversarial import AdversarialModule

_SHOWN = 384  # pixels to which small images are enlarged, without smoothing


class Explorer:
    """Generates the images that the demo asks for.

    Args:
        module: a GAN that maps latents to images.
        num_directions: number of directions with a slider; fewer if latents are shorter.
    """

    def __init__(self, module: AdversarialModule, num_directions: int = 5) -> None:
        self.module = module
        try:
            self.directions, _ = directions(module, min(num_directions, module.latent_dim))
        except RefusedInput:  # the generator has no such layer
            self.directions = torch.empty(0, module.latent_dim)

    def image(
        self, seed: int, label: int | None = None, truncation: float | None = None, amounts: tuple[float, ...] = ()
    ) -> UInt8[np.ndarray, "h w c"]:
        """Returns one image, enlarged for the screen.

        Args:
            seed: seed of the latent.
            label: class, for a model with classes.
            truncation: bound of the latent's numbers; None for none.
            amounts: how far to move along each direction.
        """
        latent = self._latent(seed, truncation)
        for direction, amount in zip(self.directions, amounts, strict=False):
            latent = latent + amount * direction
        return self._shown(latent, label)[0]

    def walk(
        self, first: int, second: int, steps: int = 9, label: int | None = None, truncation: float | None = None
    ) -> list[UInt8[np.ndarray, "h w c"]]:
        """Returns images between two seeds, both included."""
        start, end = (self._latent(seed, truncation) for seed in (first, second))
        return self._shown(slerp(start, end, steps)[0], label)

    def _latent(self, seed: int, truncation: float | None) -> Float[Tensor, "1 z"]:
        return truncated(self.module.latents(1, int(seed)), truncation)

    def _shown(self, latents: Float[Tensor, "n z"], label: int | None) -> list[UInt8[np.ndarray, "h w c"]]:
        labels = self.module.labels(len(latents), label)
        images = self.module.decode(latents, labels=labels).cpu()
        times = max(1, _SHOWN // images.shape[-1])
        large = images.repeat_interleave(times, -1).repeat_interleave(times, -2).mul(255).round().byte()
        colored = large.expand(-1, 3, -1, -1) if large.shape[1] == 1 else large
        return [*colored.permute(0, 2, 3, 1).numpy()]
