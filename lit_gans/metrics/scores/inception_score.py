"""Inception Score."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from lit_gans.common.errors import refuse_below
from lit_gans.common.noise import mix
from lit_gans.metrics.scores.base import FeatureScore


def inception_scores(logits: Float[Tensor, "n k"], splits: int) -> Float[Tensor, " splits"]:
    """Computes exp(mean KL(p(y|x) || p(y))) for each of the consecutive splits (Salimans et al. 2016, section 4)."""
    logs = logits.double().log_softmax(1)
    bounds = [index * len(logits) // splits for index in range(splits + 1)]
    scores = []
    for start, end in pairwise(bounds):
        split = logs[start:end]
        divergence = split.exp() * (split - split.exp().mean(0, keepdim=True).log())
        scores.append(divergence.nan_to_num(0).sum(1).mean().exp())  # zero probabilities contribute nothing
    return torch.stack(scores)


class InceptionScore(FeatureScore):
    """Inception Score (Salimans et al. 2016): mean and spread over splits of the shuffled samples.

    Unlike torchmetrics' class, this class shuffles the samples with a fixed seed, and the spread is the standard
    deviation normalized by n. `compute` returns both values as scalars. See `FeatureScore` for further arguments.

    Args:
        splits: number of splits.

    Raises:
        RefusedInput: `splits` is below 1.

    Examples:
        >>> import torch
        >>> from lit_gans.metrics import InceptionScore
        >>> from lit_gans.metrics.extractors.digits import DigitsExtractor
        >>> score = InceptionScore(DigitsExtractor(), splits=2)
        >>> score.update(torch.zeros(40, 1, 32, 32, dtype=torch.uint8))
        >>> score.compute()  # all images are equal
        (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """

    needs_logits = higher_is_better = True
    directions = {"is": "max", "is_spread": None}

    fake_logits: list[Tensor]

    def __init__(self, feature: nn.Module | None = None, splits: int = 10, **kwargs: Any) -> None:
        refuse_below(1, splits=splits)
        super().__init__(feature, **kwargs)
        self.splits = splits

    def add_states(self) -> None:
        self.add_state("fake_logits", [], dist_reduce_fx="cat")

    def update_features(self, features: Float[Tensor, "n f"], logits: Float[Tensor, "n k"], real: bool) -> None:
        if not real:
            self.fake_logits.append(logits.float().cpu())

    def too_few(self, num_real: float, num_fake: float) -> str | None:
        if num_fake >= 2 * self.splits:
            return None
        return (
            f"{num_fake} generated images are too few for {self.splits} splits: use at least {2 * self.splits} images"
            " (metrics.num_samples), or fewer splits (metrics.scores.inception_score.splits)."
        )

    def compute(self) -> tuple[Float64[Tensor, ""], Float64[Tensor, ""]]:
        """Returns the mean and the spread.

        Raises:
            RefusedInput: there are fewer than two images for each split.
        """
        logits = self.rows("fake_logits")
        self.refuse_too_few(math.inf, len(logits))
        generator = torch.Generator().manual_seed(mix(self.seed, "inception score"))
        order = torch.randperm(len(logits), generator=generator)
        scores = inception_scores(logits[order], self.splits).to(self.device)
        return scores.mean(), scores.std(correction=0)
