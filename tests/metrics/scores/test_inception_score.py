import math

import pytest
import torch
from torch_fidelity.metric_isc import isc_features_to_metric

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.inception_score import InceptionScore, inception_scores


def logits(num, scale=3.0):
    return scale * torch.randn(num, 12, generator=torch.Generator().manual_seed(num))


@pytest.mark.parametrize(("num", "splits"), [(100, 10), (107, 10), (50, 1)])
def test_mean_and_spread_are_torch_fidelity_s_on_the_same_order(num, splits):
    scores = inception_scores(logits(num), splits)
    expected = isc_features_to_metric(logits(num), splits=splits, shuffle=False)
    assert scores.mean().item() == pytest.approx(expected["inception_score_mean"], rel=1e-6)
    assert scores.std(correction=0).item() == pytest.approx(expected["inception_score_std"], rel=1e-6, abs=1e-9)


def test_certain_and_even_classes_give_their_number_and_equal_samples_one():
    certain = 1000.0 * torch.eye(12).repeat(5, 1)
    assert inception_scores(certain, 5).tolist() == pytest.approx([12] * 5)
    assert inception_scores(certain[:1].expand(10, -1), 2).tolist() == pytest.approx([1, 1])


def score(**settings):
    score = InceptionScore(**settings)
    score.update(Features(torch.zeros(60, 2), logits(60)))
    return score


def test_the_seed_decides_the_split_and_nothing_is_drawn_from_the_training_s_numbers():
    before = torch.get_rng_state()
    one, again, other = (score(seed=seed).compute() for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert torch.equal(before, torch.get_rng_state())


def test_refusals():
    assert "19 generated images are too few for 10 splits: use at least 20" in InceptionScore().too_few(math.inf, 19)
    assert InceptionScore().too_few(math.inf, 20) is None
    with pytest.raises(RefusedInput, match="splits=0"):
        InceptionScore(splits=0)
    with pytest.raises(RefusedInput, match="60 generated images are too few for 31 splits"):
        score(splits=31).compute()


def test_real_images_do_not_count_and_the_spread_is_over_n():
    halves = score(splits=2)
    halves.update(Features(torch.zeros(40, 2), logits(40)), real=True)
    mean, spread = (value.item() for value in halves.compute())
    with torch.random.fork_rng():
        torch.manual_seed(mix(0, "inception score"))
        one, other = inception_scores(logits(60)[torch.randperm(60)], 2).tolist()
    assert (mean, spread) == (pytest.approx((one + other) / 2), pytest.approx(abs(one - other) / 2))
    assert halves.named(halves.compute()) == {"is": mean, "is_spread": spread}
