"""Number of classes of the data that the samples cover."""

from __future__ import annotations

from dataclasses import dataclass

from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.score import Score, needed
from lit_gans.metrics.statistics import Summary


@dataclass(frozen=True)
class ClassCoverage(Score):
    """Number of classes with enough confidently classified samples; requires an extractor with the data's classes.

    Args:
        confidence: smallest probability, in [0, 1], with which a sample counts for its class.
        share: smallest fraction of all samples, in [0, 1], for which a class counts as covered.
    """

    needs_logits = True
    with_extractor = False
    directions = {"classes_covered": "max"}

    confidence: float = 0.9
    share: float = 0.02

    def applies(self, extractor: Extractor) -> bool:
        return extractor.num_classes > 0

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        logits = needed(fake.logits)
        probability, label = logits.softmax(1).max(1)
        counts = label[probability >= self.confidence].bincount(minlength=logits.shape[1])
        return {"classes_covered": float((counts >= self.share * fake.num).sum())}
