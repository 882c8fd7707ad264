"""Points in the plane from mixtures of Gaussians with known modes."""

from __future__ import annotations

import math
from typing import Any

import torch

from lit_gans.data.mixture import Mixture


class Ring(Mixture):
    """8 Gaussians on a circle of radius 2 with covariance 0.02 I (Nguyen et al. 2017, section 5.1).

    Args:
        **kwargs: see `Mixture`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        angles = torch.arange(8) * (2 * math.pi / 8)
        self.centers = 2 * torch.stack([angles.sin(), angles.cos()], 1)


class Grid(Mixture):
    """25 Gaussians on a 5x5 grid of spacing 2 with standard deviation 0.05 (Srivastava et al. 2017, section 4.1).

    Args:
        std: see `Mixture`.
        **kwargs: see `Mixture`.
    """

    def __init__(self, std: float = 0.05, **kwargs: Any) -> None:
        super().__init__(std=std, **kwargs)
        line = torch.arange(-4.0, 5.0, 2.0)
        self.centers = torch.cartesian_prod(line, line)
