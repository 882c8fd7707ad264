"""Coverage of the known modes of a data set: how many modes the samples cover, and how evenly they cover them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.metrics.scores.base import Score


class ModeCoverage(Score):
    """Number of covered modes, fraction of samples within any mode, and divergence from a uniform coverage.

    `compute` returns a dictionary of scalars:

    - `modes_covered`: number of modes with at least `min_samples` samples (Srivastava et al. 2017, section 4.1).
    - `high_quality`: fraction of samples within any mode, in [0, 1], or NaN if there are no samples.
    - `kl_uniform`: KL divergence in nats, KL(distribution of samples over modes || uniform distribution). The
      divergence is infinite if no sample is within any mode.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import ModeCoverage
        >>> coverage = ModeCoverage(num_modes=4, min_samples=2)
        >>> coverage.update(torch.tensor([0, 0, 2, 2, 3, -1, 2, 0]))  # -1: outside all modes
        >>> coverage.compute()
        {'modes_covered': tensor(2., dtype=torch.float64), 'high_quality': tensor(0.8750, dtype=torch.float64),
         'kl_uniform': tensor(0.3821, dtype=torch.float64)}

    Args:
        num_modes: number of modes of the data.
        min_samples: minimum number of samples in a covered mode.
        **kwargs: see `torchmetrics.Metric`.

    Attributes:
        directions: whether larger (`max`) or smaller (`min`) values are better. `higher_is_better` applies only to
            `modes_covered`.

    Raises:
        RefusedInput: `num_modes` or `min_samples` is below 1.
    """

    directions: ClassVar[dict[str, str]] = {"modes_covered": "max", "high_quality": "max", "kl_uniform": "min"}
    higher_is_better = True

    counts: Tensor
    num: Tensor

    def __init__(self, num_modes: int, min_samples: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        refuse_below(1, num_modes=num_modes, min_samples=min_samples)
        self.num_modes, self.min_samples = num_modes, min_samples
        self.add_state("counts", torch.zeros(num_modes, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("num", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, modes: Int64[Tensor, " n"]) -> None:
        """Adds the modes of samples.

        Args:
            modes: index of each sample's mode, or -1 for samples outside of all modes.

        Raises:
            RefusedInput: an index is less than -1, or is not less than `num_modes`.
        """
        if len(modes) and (modes.min() < -1 or modes.max() >= self.num_modes):
            raise RefusedInput(
                f"Modes range from {modes.min()} to {modes.max()}, expected -1 (outside of all modes) to"
                f" {self.num_modes - 1}."
            )
        self.counts += modes[modes >= 0].bincount(minlength=self.num_modes)
        self.num += len(modes)

    def compute(self) -> dict[str, Float64[Tensor, ""]]:
        """Returns the values by name."""
        counts = self.counts.cpu().float()
        inside = counts.sum().item()
        fractions = counts[counts > 0] / max(inside, 1)
        divergence = (fractions * fractions.log()).sum().item() + math.log(len(counts)) if inside else math.inf
        values = {
            "modes_covered": float((counts >= self.min_samples).sum()),
            "high_quality": inside / self.num.item() if self.num else math.nan,
            "kl_uniform": max(0.0, divergence),
        }
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
