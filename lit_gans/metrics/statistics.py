"""What is kept of a set of images: streamed moments of features, and features or logits where a score needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, distributed

from lit_gans.common.errors import RefusedInput

_NOISE = 1e-12  # relative to the largest eigenvalue: what is smaller is rounding of a covariance without full rank


@dataclass(frozen=True)
class Summary:
    """The images of all ranks together, in main memory.

    Args:
        num: how many images.
        mean: of the features.
        covariance: of the features, over num - 1.
        features: (num, f), where they were kept, in the order of the images whatever the number of ranks.
        logits: (num, k), likewise.
    """

    num: int
    mean: Float64[Tensor, " f"]
    covariance: Float64[Tensor, "f f"]
    features: Float[Tensor, "n f"] | None = None
    logits: Float[Tensor, "n k"] | None = None

    @cached_property
    def root(self) -> Float64[Tensor, "f f"]:
        """The symmetric square root of the covariance."""
        # numpy's: torch's threads wait for each other on a busy machine, ten times as long as this takes
        values, vectors = map(torch.from_numpy, np.linalg.eigh(self.covariance.numpy()))
        return (vectors * positive(values).sqrt()) @ vectors.T


def positive(values: Float64[Tensor, " f"]) -> Float64[Tensor, " f"]:
    """Returns eigenvalues with those that are rounding of zero set to it: their square roots would not be small."""
    return torch.where(values > _NOISE * values.abs().max(), values, 0)


class Statistics:
    """Takes in the features of this rank's images, batch by batch.

    Memory is that of one (f, f) matrix in float64, and of 4 bytes a feature or logit of each image where
    those are kept, in main memory.

    Args:
        keep_features, keep_logits: what some score needs of each image.

    Attributes:
        num: images that this rank has taken in.
    """

    def __init__(self, keep_features: bool = False, keep_logits: bool = False) -> None:
        self.keep_features, self.keep_logits = keep_features, keep_logits
        self.num = 0
        self._sum: Tensor | float = 0.0
        self._products: Tensor | float = 0.0
        self._features: list[Tensor] = []
        self._logits: list[Tensor] = []
        self._widths = (0, 0)

    def add(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"]) -> None:
        """Takes in a batch.

        Raises:
            FloatingPointError: a feature or logit is not finite: linear algebra would abort or hang on it.
        """
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("the extractor made features that are not finite of finite images.")
        self._widths = (features.shape[1], logits.shape[1])
        wide = features.double()
        self.num += len(features)
        self._sum = self._sum + wide.sum(0)
        self._products = self._products + wide.T @ wide
        if self.keep_features:
            self._features.append(features.cpu())
        if self.keep_logits:
            self._logits.append(logits.cpu())

    def summary(self, in_turn: bool = False) -> Summary:
        """Returns what all ranks have taken in; every rank must call it, also one that had no image.

        Args:
            in_turn: the ranks took the batches in turn; else each took one part of the images.

        Raises:
            RefusedInput: fewer than two images: they have no covariance.
        """
        parts = [(self.num, self._sum, self._products, self._features, self._logits)]
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            parts = _gathered(*parts[0], self._widths)
        num = sum(part[0] for part in parts)
        if num < 2:
            raise RefusedInput(f"{num} images have no covariance: use at least 2.")
        total = sum(part[1] for part in parts)
        mean = total / num
        covariance = (sum(part[2] for part in parts) - num * torch.outer(mean, mean)) / (num - 1)
        features, logits = (_joined([part[place] for part in parts], in_turn) for place in (3, 4))
        return Summary(num, mean.cpu(), covariance.cpu(), features, logits)


def _joined(ranks: list[list[Tensor]], in_turn: bool) -> Tensor | None:
    turns = zip_longest(*ranks) if in_turn else ranks
    batches = [batch for group in turns for batch in group if batch is not None]
    return torch.cat(batches) if batches else None


def _gathered(num, total, products, features, logits, widths):
    """Returns what each rank has. Moments are reduced on the device; only kept features travel whole."""
    device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else "cpu"
    told: list = [None] * distributed.get_world_size()
    sizes = ([len(batch) for batch in features], [len(batch) for batch in logits])
    distributed.all_gather_object(told, (num, widths, sizes))
    wide, many = (max(item[1][place] for item in told) for place in (0, 1))
    sums = []
    for value, shape in ((total, (wide,)), (products, (wide, wide))):
        whole = torch.zeros(shape, dtype=torch.float64, device=device)
        whole += value.to(device) if isinstance(value, Tensor) else value
        distributed.all_reduce(whole)
        sums.append(whole.to(value.device) if isinstance(value, Tensor) else whole)
    kept = [
        _gathered_rows(batches, [sum(item[2][place]) for item in told], width, device)
        for place, (batches, width) in enumerate(((features, wide), (logits, many)))
    ]
    ranks = []
    for rank, (count, _, (feature_sizes, logit_sizes)) in enumerate(told):
        own = [list(kept[0][rank].split(feature_sizes)), list(kept[1][rank].split(logit_sizes))]
        ranks.append((count, sums[0] if rank == 0 else 0.0, sums[1] if rank == 0 else 0.0, *own))
    return ranks


def _gathered_rows(batches: list[Tensor], rows: list[int], width: int, device) -> list[Tensor]:
    """Returns the rows of each rank: padded on the way, since ranks may have different numbers, or none."""
    if not max(rows):
        return [torch.empty(0, width) for _ in rows]
    own = torch.cat(batches).to(device) if batches else torch.empty(0, width, device=device)
    padded = torch.zeros(max(rows), width, device=device)
    padded[: len(own)] = own
    everyone = [torch.empty_like(padded) for _ in rows]
    distributed.all_gather(everyone, padded)
    return [padded[:num].cpu() for padded, num in zip(everyone, rows, strict=True)]
