"""Statistics of a set of images: streamed moments of features, and features or logits if a score needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, distributed

from lit_gans.common.errors import RefusedInput

_NOISE = 1e-12  # relative to the largest eigenvalue: smaller ones are rounding errors of a rank-deficient covariance


@dataclass(frozen=True)
class Summary:
    """Statistics of the images of all ranks, in main memory.

    Args:
        num: number of images.
        mean: mean of the features.
        covariance: covariance of the features, normalised by num - 1.
        features: (num, f) if stored, in the order of the images for any number of ranks.
        logits: (num, k) if stored, in the same order.
    """

    num: int
    mean: Float64[Tensor, " f"]
    covariance: Float64[Tensor, "f f"]
    features: Float[Tensor, "n f"] | None = None
    logits: Float[Tensor, "n k"] | None = None

    @cached_property
    def root(self) -> Float64[Tensor, "f f"]:
        """Symmetric square root of the covariance."""
        # NumPy's solver: torch's threads contend on a busy machine and can take ten times as long
        values, vectors = map(torch.from_numpy, np.linalg.eigh(self.covariance.numpy()))
        return (vectors * positive(values).sqrt()) @ vectors.T


def positive(values: Float64[Tensor, " f"]) -> Float64[Tensor, " f"]:
    """Sets eigenvalues that are rounding errors to 0, since their square roots would not be small."""
    return torch.where(values > _NOISE * values.abs().max(), values, 0)


class Statistics:
    """Accumulates the features of this rank's images, batch by batch.

    Requires the memory of one (f, f) matrix in float64 and, if features or logits are stored, 4 bytes of main memory
    for each of them.

    Args:
        keep_features, keep_logits: whether a score needs them for each image.

    Attributes:
        num: number of images that this rank has added.
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
        """Adds a batch.

        Raises:
            FloatingPointError: a feature or logit is not finite, so that linear algebra would abort or hang.
        """
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("The extractor returned features that are not finite for finite images.")
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
        """Returns the statistics of all ranks; every rank must call it, even without images.

        Args:
            in_turn: whether batches were distributed over the ranks round-robin; otherwise contiguously.

        Raises:
            RefusedInput: there are fewer than two images, so that no covariance exists.
        """
        own = _Moments(self.num, self._sum, self._products, self._features, self._logits)
        several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        ranks = _gathered(own, self._widths) if several else [own]
        num = sum(rank.num for rank in ranks)
        if num < 2:
            raise RefusedInput(f"{num} images have no covariance: use at least 2.")
        mean = torch.as_tensor(sum(rank.total for rank in ranks) / num)
        products = torch.as_tensor(sum(rank.products for rank in ranks))
        covariance = (products - num * torch.outer(mean, mean)) / (num - 1)
        features, logits = (
            _joined(rows, in_turn) for rows in ([rank.features for rank in ranks], [rank.logits for rank in ranks])
        )
        return Summary(num, mean.cpu(), covariance.cpu(), features, logits)


def _joined(ranks: list[list[Tensor]], in_turn: bool) -> Tensor | None:
    turns = zip_longest(*ranks) if in_turn else ranks
    batches = [batch for group in turns for batch in group if batch is not None]
    return torch.cat(batches) if batches else None


class _Moments(NamedTuple):
    """Number, sum and sum of products of the features of one rank, and stored batches of features and logits."""

    num: int
    total: Tensor | float
    products: Tensor | float
    features: list[Tensor]
    logits: list[Tensor]


def _gathered(own: _Moments, widths: tuple[int, int]) -> list[_Moments]:
    """Returns the moments of each rank: sums are reduced on the device, stored features are gathered."""
    device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else "cpu"
    everyone: list[Any] = [None] * distributed.get_world_size()
    sizes = ([len(batch) for batch in own.features], [len(batch) for batch in own.logits])
    distributed.all_gather_object(everyone, (own.num, widths, sizes))
    num_features, num_logits = (max(theirs[1][place] for theirs in everyone) for place in (0, 1))
    total = _reduced(own.total, (num_features,), device)
    products = _reduced(own.products, (num_features, num_features), device)
    features = _gathered_rows(own.features, [sum(theirs[2][0]) for theirs in everyone], num_features, device)
    logits = _gathered_rows(own.logits, [sum(theirs[2][1]) for theirs in everyone], num_logits, device)
    ranks = []
    for rank, (num, _, (feature_sizes, logit_sizes)) in enumerate(everyone):
        rows = list(features[rank].split(feature_sizes)), list(logits[rank].split(logit_sizes))
        ranks.append(_Moments(num, total if rank == 0 else 0.0, products if rank == 0 else 0.0, *rows))
    return ranks


def _reduced(value: Tensor | float, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    """Returns the sum over all ranks, some of which may contribute only a zero."""
    total = torch.zeros(shape, dtype=torch.float64, device=device)
    total += value.to(device) if isinstance(value, Tensor) else value
    distributed.all_reduce(total)
    return total.to(value.device) if isinstance(value, Tensor) else total


def _gathered_rows(batches: list[Tensor], rows: list[int], width: int, device: torch.device | str) -> list[Tensor]:
    """Gathers the rows of each rank, padded for transfer, since ranks may have different numbers of rows, or none."""
    if not max(rows):
        return [torch.empty(0, width) for _ in rows]
    own = torch.cat(batches).to(device) if batches else torch.empty(0, width, device=device)
    padded = torch.zeros(max(rows), width, device=device)
    padded[: len(own)] = own
    everyone = [torch.empty_like(padded) for _ in rows]
    distributed.all_gather(everyone, padded)
    return [padded[:num].cpu() for padded, num in zip(everyone, rows, strict=True)]
