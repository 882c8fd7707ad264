"""How many classes of the data the samples cover."""

from __future__ import annotations

from dataclasses import dataclass

from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.score import Score
from lit_gans.metrics.statistics import Summary


@dataclass(frozen=True)
class ClassCoverage(Score):
    """The classes with enough samples that the extractor is sure of; where its classes are those of the data.

    Args:
        confidence: a sample counts for a class at this probability or more.
        share: a class is covered by at least this share of the samples.
    """

    needs_logits = True
    with_extractor = False
    directions = {"classes_covered": "max"}

    confidence: float = 0.9
    share: float = 0.02

    def applies(self, extractor: Extractor) -> bool:
        return extractor.num_classes > 0

    def compute(self, real: Summary, fake: Summary, seed: int) -> dict[str, float]:
        probability, label = fake.logits.softmax(1).max(1)
        counts = label[probability >= self.confidence].bincount(minlength=fake.logits.shape[1])
        return {"classes_covered": float((counts >= self.share * fake.num).sum())}
