"""Sources of points in the plane, sampled from mixtures of Gaussians with known modes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below, refuse_not_positive
from lit_gans.common.noise import mix
from lit_gans.common.size import Size
from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.digests import digest_of_parts

_WITHIN = 3.0  # maximum distance between a mode and a sample that belongs to the mode, in standard deviations


class Mixture(ImageData, ABC):
    """Points sampled from Gaussians around `centers`. All modes are equally likely.

    A point is represented as an image with 2 channels and 1 pixel, so that it can be used wherever images are used.

    Args:
        num_points: number of points, which are sampled once.
        std: standard deviation of each Gaussian, in each direction.
        image_size: must be 1.
        channels: must be 2.
        batch_size, seed: see `ImageData`.
        **kwargs: see `ImageData`.

    Raises:
        RefusedInput: `image_size` is not 1, `channels` is not 2, `num_points` is less than 1, or `std` is not greater
            than 0.
    """

    metrics = "modes"
    possible_channels = (2,)
    # minimum number of samples in a covered mode, out of 2,500 samples (Srivastava et al. 2017; Lin et al. 2018)
    min_samples = 20
    num_plotted = 2500

    def __init__(
        self,
        num_points: int = 100_000,
        std: float = 0.02**0.5,
        image_size: Size = 1,
        channels: int = 2,
        batch_size: int = 512,
        **kwargs: Any,
    ) -> None:
        super().__init__(image_size=image_size, channels=channels, batch_size=batch_size, **kwargs)
        if self.image_size != 1:
            raise RefusedInput(f"image_size={image_size}: a point is an image of 1 pixel.")
        refuse_below(1, num_points=num_points)
        refuse_not_positive(std=std)
        self.num_points, self.std = num_points, std

    @property
    @abstractmethod
    def centers(self) -> Float[Tensor, "k 2"]:
        """Center of each mode, with shape (number of modes, 2)."""

    def make_dataset(self) -> ImagesInMemory:
        generator = torch.Generator().manual_seed(mix(self.seed, "points"))
        modes = torch.randint(len(self.centers), (self.num_points,), generator=generator)
        points = self.centers[modes] + self.std * torch.randn(self.num_points, 2, generator=generator)
        return ImagesInMemory(points[:, :, None, None], modes)

    def digests(self) -> dict[str, str]:
        # digests the distribution, not the points, because the last digits of the points depend on the processor
        centers = [[f"{coordinate:.6f}" for coordinate in center] for center in self.centers.tolist()]
        return {"points": digest_of_parts(centers=centers, std=self.std, num_points=self.num_points, seed=self.seed)}

    @property
    def num_modes(self) -> int:
        """Number of modes."""
        return len(self.centers)

    def modes_of(self, points: Float[Tensor, "n 2 1 1"]) -> Int64[Tensor, " n"]:
        """Returns the index of each point's nearest mode, or -1 if the mode is more than 3 standard deviations away."""
        distance, mode = torch.cdist(points.flatten(1), self.centers.to(points)).min(1)
        return mode.where(distance <= _WITHIN * self.std, -1)

    def plot(self, points: Float[Tensor, "n 2 1 1"], path: Path) -> None:
        """Plots generated points on top of the same number of real points, and saves the plot to `path`."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4, 4), dpi=100, layout="constrained")
        axes = figure.add_subplot(aspect="equal")
        for samples, color, name in ((self.dataset.images[: len(points)], "0.75", "real"), (points, "C3", "generated")):
            x, y = samples.flatten(1).T.cpu().numpy()
            axes.scatter(x, y, s=2, c=color, label=name, linewidths=0)
        reach = 1.5 * self.centers.abs().max().item()
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
        axes.legend(loc="upper right", markerscale=5)
        figure.savefig(path)


class Ring(Mixture):
    """8 Gaussians on a circle of radius 2 with covariance 0.02 I (Nguyen et al. 2017, section 5.1).

    Args:
        **kwargs: see `Mixture`.
    """

    @property
    def centers(self) -> Float[Tensor, "8 2"]:
        angles = torch.arange(8) * (2 * math.pi / 8)
        return 2 * torch.stack([angles.sin(), angles.cos()], 1)


class Grid(Mixture):
    """25 Gaussians on a 5x5 grid of spacing 2 with standard deviation 0.05 (Srivastava et al. 2017, section 4.1).

    Args:
        **kwargs: see `Mixture`.
    """

    def __init__(self, std: float = 0.05, **kwargs: Any) -> None:
        super().__init__(std=std, **kwargs)

    @property
    def centers(self) -> Float[Tensor, "25 2"]:
        line = torch.arange(-4.0, 5.0, 2.0)
        return torch.cartesian_prod(line, line)
