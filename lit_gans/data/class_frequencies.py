"""Class labels of generated images that are as frequent as the class labels of real images."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor


def in_proportion(labels: Int64[Tensor, " m"], num: int) -> Int64[Tensor, " n"]:
    """Returns `num` labels whose frequencies differ from those of `labels` by at most one image per class.

    The classes alternate, so that every part of the result has similar frequencies. If all classes are equally
    frequent, the result repeats the ascending classes.

    Examples:
        >>> import torch
        >>> from lit_gans.data.class_frequencies import in_proportion
        >>> in_proportion(torch.tensor([0, 0, 0, 1, 1, 2]), 12).tolist()
        [0, 1, 0, 2, 1, 0, 0, 1, 0, 2, 1, 0]
    """
    quantiles = (2 * torch.arange(num) + 1) * len(labels) // (2 * num)
    chosen = labels.cpu().sort().values[quantiles]
    counts = chosen.bincount()
    place = torch.arange(num) - (counts.cumsum(0) - counts)[chosen]  # position among the labels of the same class
    return chosen[((place + 0.5) / counts[chosen]).sort(stable=True).indices]
