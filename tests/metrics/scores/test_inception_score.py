import pytest
import torch
from torch_fidelity.metric_isc import isc_features_to_metric

from lit_gans.common.errors import RefusedInput
from lit_gans.common.noise import mix
from lit_gans.metrics.scores.inception_score import InceptionScore, inception_scores
from lit_gans.metrics.statistics import Summary


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


def test_the_seed_decides_the_split_and_nothing_is_drawn_from_the_training_s_numbers():
    fake = Summary(60, torch.zeros(2).double(), torch.eye(2).double(), None, logits(60))
    before = torch.get_rng_state()
    one, again, other = (InceptionScore().compute(fake, fake, seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert torch.equal(before, torch.get_rng_state())


def test_refusals():
    assert "19 generated images are too few for 10 splits: use at least 20" in InceptionScore().too_few(None, 19)
    assert InceptionScore().too_few(None, 20) is None
    with pytest.raises(RefusedInput, match="splits=0"):
        InceptionScore(splits=0)


def test_the_spread_is_over_n():
    fake = Summary(60, torch.zeros(2).double(), torch.eye(2).double(), None, logits(60))
    values = InceptionScore(splits=2).compute(fake, fake, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(mix(0, "inception score"))
        one, other = inception_scores(logits(60)[torch.randperm(60)], 2).tolist()
    assert values == {"is": pytest.approx((one + other) / 2), "is_spread": pytest.approx(abs(one - other) / 2)}
