"""Inception Score."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import forked, mix
from lit_gans.metrics.scores.score import Score, needed
from lit_gans.metrics.statistics import Summary


def inception_scores(logits: Float[Tensor, "n k"], splits: int) -> Float[Tensor, " splits"]:
    """Computes exp(mean KL(p(y|x) || p(y))) of `splits` consecutive splits (Salimans et al. 2016, section 4)."""
    logs = logits.double().log_softmax(1)
    bounds = [index * len(logits) // splits for index in range(splits + 1)]
    scores = []
    for start, end in pairwise(bounds):
        split = logs[start:end]
        divergence = split.exp() * (split - split.exp().mean(0, keepdim=True).log())
        scores.append(divergence.nan_to_num(0).sum(1).mean().exp())  # zero probabilities contribute nothing
    return torch.stack(scores)


@dataclass(frozen=True)
class InceptionScore(Score):
    """Inception Score (Salimans et al. 2016): mean and spread over splits of the shuffled samples.

    The spread is the standard deviation normalised by n, as in torch-fidelity (n - 1 in torchmetrics).

    Args:
        splits: number of splits, 10 in the paper.

    Raises:
        RefusedInput: `splits` is below 1.
    """

    needs_logits = True
    directions = {"is": "max", "is_spread": None}

    splits: int = 10

    def __post_init__(self) -> None:
        if self.splits < 1:
            raise RefusedInput(f"splits={self.splits} must be at least 1.")

    def too_few(self, num_real: int | None, num_fake: int) -> str | None:
        if num_fake >= 2 * self.splits:
            return None
        return (
            f"{num_fake} generated images are too few for {self.splits} splits: use at least {2 * self.splits}"
            " (metrics.num_samples), or fewer metrics.inception_score.splits."
        )

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        with forked():
            torch.manual_seed(mix(seed, "inception score"))
            order = torch.randperm(fake.num)
        scores = inception_scores(needed(fake.logits)[order], self.splits)
        return {"is": scores.mean().item(), "is_spread": scores.std(correction=0).item()}
