"""Scores that store features reuse what they computed from the real images, while these stay the same."""

import pytest
import torch

from lit_gans.metrics import CMMD, MemorizationInformedFrechetInceptionDistance, PrecisionRecallDensityCoverage
from lit_gans.metrics.extractors.base import Features

SCORES = [CMMD, MemorizationInformedFrechetInceptionDistance, PrecisionRecallDensityCoverage]


def features(num, seed):
    rows = torch.randn(num, 5, generator=torch.Generator().manual_seed(seed))
    return Features(rows, rows[:, :0])


def values(score):
    return score.named(score.compute())


def fresh(cls, real, fake):
    score = cls()
    score.update(real, real=True)
    score.update(fake)
    return values(score)


@pytest.mark.parametrize("cls", SCORES)
def test_what_is_computed_from_the_real_images_is_computed_once(cls, monkeypatch):
    calls, of_real = [], cls.of_real
    monkeypatch.setattr(
        cls, "of_real", lambda self, real, compute: of_real(self, real, lambda rows: calls.append(1) or compute(rows))
    )
    score, real = cls(reset_real_features=False), features(60, 0)
    score.update(real, real=True)
    for seed in (1, 2):
        score.update(features(40, seed))
        assert values(score) == fresh(cls, real, features(40, seed))
        score.reset()
    assert sum(calls) == 1 + 2, "once by the score, and once by each fresh score"
    assert all(not isinstance(part, torch.Tensor) for part in score._of_real[0]), "keeps no further features"
    score.update(features(10, 3), real=True)  # further real images
    score.update(features(40, 2))
    more = Features(*(torch.cat(pair) for pair in zip(real, features(10, 3), strict=True)))
    assert values(score) == fresh(cls, more, features(40, 2))


def test_another_setting_is_computed_anew():
    score, real, fake = PrecisionRecallDensityCoverage(), features(60, 0), features(40, 1)
    score.update(real, real=True)
    score.update(fake)
    assert values(score) == fresh(PrecisionRecallDensityCoverage, real, fake)
    score._computed, score.nearest = None, 1
    assert score.named(type(score).compute(score)) != fresh(PrecisionRecallDensityCoverage, real, fake)
