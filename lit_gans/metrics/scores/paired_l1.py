"""Mean absolute difference between images and their targets."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import refuse_out_of_range
from lit_gans.metrics.scores.base import Score


class PairedL1(Score):
    """Mean absolute difference between images and their targets, in [0, 1]. All images must have the same size.

    Images must be uint8, or floats in [0, 1]. Images and their targets can have different types.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import PairedL1
        >>> l1 = PairedL1()
        >>> l1.update(torch.full((2, 1, 4, 4), 0.5), torch.full((2, 1, 4, 4), 255, dtype=torch.uint8))
        >>> l1.update(torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4))
        >>> l1.compute()
        tensor(0.2500, dtype=torch.float64)

    Args:
        **kwargs: see `torchmetrics.Metric`.
    """

    sum_abs_error: Tensor
    total: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("sum_abs_error", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds images and their targets, both (n, c, h, w).

        Raises:
            RefusedInput: the shapes differ, or images are neither uint8 nor floats in [0, 1].
        """
        if preds.shape != target.shape:
            raise RefusedInput(
                f"Images have shape {tuple(preds.shape)}, but their targets have shape {tuple(target.shape)}: expected"
                " the same shape."
            )
        differences = (_in_unit_range(preds) - _in_unit_range(target)).abs()
        self.sum_abs_error += differences.mean((1, 2, 3)).sum()
        self.total += len(preds)

    def compute(self) -> Float64[Tensor, ""]:
        """Returns the mean over all images."""
        return self.sum_abs_error.cpu().double() / self.total.cpu()  # on the CPU, because MPS does not support float64


def _in_unit_range(images: Tensor) -> Float[Tensor, "n c h w"]:
    """Scales uint8 images to [0, 1] and returns float images unchanged. NaN is kept, and makes the metric NaN."""
    if images.dtype == torch.uint8:
        return images.float() / 255
    if not images.is_floating_point():
        raise RefusedInput(f"Images are {images.dtype}, expected uint8, or floats in [0, 1].")
    refuse_out_of_range(images)
    return images.float()
